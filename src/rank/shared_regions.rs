//! The regions of a communicator: how ranks name bytes that lie in them.
//!
//! Regions are numbered in the order in which they were made, which is the same on all ranks. A rank drops its handle when it
//! likes, without the others, so it may not have a region that another one names: see [`crate::protocol::offers`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::segment::region_memory::RegionBytes;

/// How many of the last regions a number of few bits tells apart.
pub(crate) const NUMBERS: u64 = 1 << 14;

/// One rank's regions in a communicator.
#[derive(Debug, Default)]
pub(crate) struct SharedRegions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// How many there have been.
    made: u64,
    /// With their numbers. They belong to the handles of the program.
    live: Vec<(u64, Weak<RegionBytes>)>,
}

impl SharedRegions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region, inside the call that makes it: so all ranks add the same ones in the same order.
    pub(crate) fn add(&self, region: &Arc<RegionBytes>) {
        let mut table = self.table();
        table.live.retain(|(_, region)| region.strong_count() > 0);
        let number = table.made;
        table.made += 1;
        table.live.push((number, Arc::downgrade(region)));
    }

    /// The region that these bytes lie in, modulo [`NUMBERS`], and the offset in it. Other threads may make regions before the
    /// call begins that sends this, so only half of the numbers are used.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<(u64, usize)> {
        let table = self.table();
        let mut recent = table.live.iter().filter(|(number, _)| table.made - number <= NUMBERS / 2);
        recent.find_map(|(number, region)| Some((number % NUMBERS, region.upgrade()?.offset_of(bytes)?)))
    }

    /// The region of such a number, if this rank has it.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<RegionBytes>> {
        let table = self.table();
        let is_it =
            |(other, _): &&(u64, Weak<RegionBytes>)| other % NUMBERS == number && table.made - other <= NUMBERS;
        table.live.iter().find(is_it).and_then(|(_, region)| region.upgrade())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::region::Parts;
    use crate::segment::region_memory::{Memory, Writable};
    use crate::sys::memory::mapping::Mapping;

    fn region() -> Memory<u8, Writable> {
        let mapping = Mapping::anonymous(4096).unwrap();
        let whole = 0..1000;
        Memory::new(mapping, 1000, Parts::of_table(&[vec![whole]], 0).unwrap())
    }

    #[test]
    fn bytes_are_found_in_the_region_that_they_lie_in() {
        let regions = SharedRegions::default();
        let mut made = [region(), region()];
        made.iter().for_each(|region| regions.add(region.bytes()));
        for (number, region) in made.iter_mut().enumerate() {
            let own = region.own().next().unwrap();
            assert_eq!(regions.place_of(&own[7..]), Some((number as u64, 7)));
            assert_eq!(regions.place_of(own), Some((number as u64, 0)));
            assert!(Arc::ptr_eq(&regions.find(number as u64).unwrap(), region.bytes()));
        }
        assert_eq!(regions.place_of(&[1, 2, 3]), None);
        let [first, second] = made;
        drop(first);
        assert!(regions.find(0).is_none() && regions.find(1).is_some());
        // It stays as long as somebody reads it.
        let found = regions.find(1).unwrap();
        drop(second);
        assert!(
            found.view(999, 1).is_some() && found.view(999, 2).is_none() && found.view(usize::MAX, 2).is_none()
        );
    }

    #[test]
    fn an_old_region_is_not_taken_for_a_new_one() {
        let regions = SharedRegions::default();
        let mut old = region();
        regions.add(old.bytes());
        let later = |made: u64| regions.table().made = made;
        later(NUMBERS / 2);
        assert_eq!(regions.place_of(old.own().next().unwrap()), Some((0, 0)));
        later(NUMBERS / 2 + 1);
        assert_eq!(regions.place_of(old.own().next().unwrap()), None);
        assert!(regions.find(0).is_some());
        later(NUMBERS);
        let new = region();
        regions.add(new.bytes());
        assert!(Arc::ptr_eq(&regions.find(0).unwrap(), new.bytes()));
    }
}
