//! The layout of a record: the file in which `intranode run --report` has its ranks count what they call.
//!
//! ```text
//!        0  header   magic, version, ranks, slices, length of the name; the name from 64 on
//!    65536  a row a rank
//!             0  row      process, joined, left, communicators that had no lane
//!          4096  lanes    each for one communicator at a time
//!                    0  head     operation, start, waiting since, waiting for, slices written, communicators, …;
//!                              from word 10 on the same of waits that belong to no round: operation, since, for
//!                  128  operations   64 bytes for each code
//!                    …  late     16 bytes for each rank of the job
//!                    …  slices   32 bytes each, a ring; only with `--trace`
//! ```
//!
//! All of it consists of words of 64 bits. A rank writes its own row, and nobody reads it before the job has ended. So a rank
//! that was killed has left what it had counted. The file is sparse: what is not written takes no memory.

/// The operations of a lane: more than there are.
pub const OPERATIONS: usize = 128;

/// The communicators of a rank that are recorded at a time. Their counters are added up, and used again when they are dropped.
pub const LANES: usize = 8;

/// The words of a lane before its operations.
pub const LANE_HEAD: usize = 16;

/// In a lane's head: the operation of a wait that belongs to no round, since when, and for which rank plus one.
pub const OTHER_WAIT: usize = 10;

/// The words of an operation's counters: one cache line.
pub const COUNTERS: usize = 8;

/// The words of what is known of a rank that was late.
pub const LATE: usize = 2;

/// The words of a slice.
pub const SLICE: usize = 4;

/// In a slice's last word, above the operation: it goes on with a call that was counted before.
pub const CONTINUED: u64 = 1 << 8;

/// In a slice's last word: where the awaited rank plus one begins.
pub const AWAITED_SHIFT: u32 = 16;

const MAGIC: u64 = u64::from_be_bytes(*b"intrarec");
const VERSION: u64 = 2;
const WORD: usize = size_of::<u64>();
const NAME: usize = 64;
/// Rows are mapped by themselves, so they begin at a page, however large pages are.
const ROW_ALIGN: usize = 1 << 16;
const LANES_FROM: usize = 4096;

/// Where everything is in a record.
///
/// ```
/// use intranode::segment::record::RecordLayout;
///
/// let layout = RecordLayout::new(2, 0);
/// let header = layout.header("/job");
/// assert_eq!(RecordLayout::of_header(&header), Some((layout, "/job".to_owned())));
/// assert_eq!(layout.len(), layout.row(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    ranks: usize,
    slices: usize,
}

impl RecordLayout {
    /// The bytes that [`of_header`](Self::of_header) needs at most. Example: [`RecordLayout`].
    pub const HEADER_BYTES: usize = 512;

    /// For this number of ranks, and of slices in each lane: 0, or a power of two. Example: [`RecordLayout`].
    ///
    /// # Panics
    /// For another number of slices.
    pub fn new(ranks: usize, slices: usize) -> Self {
        assert!(slices == 0 || slices.is_power_of_two());
        RecordLayout { ranks, slices }
    }

    /// The first bytes of the file of a job. The rest is zeros. Example: [`RecordLayout`].
    ///
    /// # Panics
    /// If the name is longer than that of a job.
    pub fn header(&self, job: &str) -> Vec<u8> {
        let words = [MAGIC, VERSION, self.ranks as u64, self.slices as u64, job.len() as u64];
        let mut header = vec![0; Self::HEADER_BYTES];
        for (bytes, word) in header.chunks_exact_mut(WORD).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        header[NAME..NAME + job.len()].copy_from_slice(job.as_bytes());
        header
    }

    /// The layout of a file, and its job's name; `None` if it is no record. Example: [`RecordLayout`].
    pub fn of_header(header: &[u8]) -> Option<(Self, String)> {
        let word = |index: usize| {
            header.get(index * WORD..(index + 1) * WORD)?.try_into().ok().map(u64::from_ne_bytes)
        };
        if (word(0)?, word(1)?) != (MAGIC, VERSION) {
            return None;
        }
        let [ranks, slices, name] = [word(2)?, word(3)?, word(4)?].map(|word| usize::try_from(word).ok());
        let (ranks, slices, name) = (ranks?, slices?, name?);
        let plausible = (1..=super::layout::MAX_RANKS).contains(&ranks)
            && (slices == 0 || slices.is_power_of_two() && slices <= 1 << 24);
        let name = String::from_utf8(header.get(NAME..NAME.checked_add(name)?)?.to_vec()).ok()?;
        plausible.then_some((RecordLayout { ranks, slices }, name))
    }

    /// The number of ranks. Example: [`RecordLayout`].
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The slices of a lane's ring. Example: [`RecordLayout`].
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// The length of the file in bytes. Example: [`RecordLayout`].
    pub fn len(&self) -> usize {
        self.row(self.ranks)
    }

    /// Never: it has a header. Example: [`RecordLayout`].
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the row of a rank begins, in bytes. Example: [`RecordLayout`].
    pub fn row(&self, rank: usize) -> usize {
        ROW_ALIGN + rank * self.row_len()
    }

    /// The length of a row in bytes. Example: [`RecordLayout`].
    pub fn row_len(&self) -> usize {
        (LANES_FROM + LANES * self.lane_words() * WORD).next_multiple_of(ROW_ALIGN)
    }

    /// Where a lane begins in its row, in bytes. Example: [`RecordLayout`].
    pub fn lane(&self, lane: usize) -> usize {
        LANES_FROM + lane * self.lane_words() * WORD
    }

    /// The words of a lane. Example: [`RecordLayout`].
    pub fn lane_words(&self) -> usize {
        (self.ring() + self.slices * SLICE).next_multiple_of(LANES_FROM / WORD)
    }

    /// Where the counters of late ranks begin, in words of a lane. Example: [`RecordLayout`].
    pub fn late(&self) -> usize {
        LANE_HEAD + OPERATIONS * COUNTERS
    }

    /// Where the ring of slices begins, in words of a lane. Example: [`RecordLayout`].
    pub fn ring(&self) -> usize {
        (self.late() + self.ranks * LATE).next_multiple_of(COUNTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_lanes_are_apart_and_aligned() {
        for (ranks, slices) in [(1, 0), (4, 1 << 16), (65_536, 0)] {
            let layout = RecordLayout::new(ranks, slices);
            assert!(layout.row(1) - layout.row(0) >= layout.lane(LANES));
            assert_eq!((layout.row(1) % ROW_ALIGN, layout.lane(1) % LANES_FROM), (0, 0));
            assert!(layout.ring() + slices * SLICE <= layout.lane_words());
            assert!(layout.late() + ranks * LATE <= layout.ring());
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let layout = RecordLayout::new(3, 8);
        let header = layout.header("/job");
        assert_eq!(RecordLayout::of_header(&header), Some((layout, "/job".to_owned())));
        for (index, byte) in [(0, 1), (8, 9), (24, 7), (33, 255)] {
            let mut other = header.clone();
            other[index] = byte;
            assert_eq!(RecordLayout::of_header(&other), None, "byte {index}");
        }
        assert_eq!(RecordLayout::of_header(&header[..40]), None);
    }
}
