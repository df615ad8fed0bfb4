//! A region of which each rank owns one cell: loom checks every access to it against all others.

use intranode::protocol::{Call, Failure, Member, Payload};

use crate::cells::Bytes;
use crate::world::{Rank, World};

/// What one rank owns.
pub(crate) type Part = Bytes<8>;

/// A rank's write epoch, and the beginning of its read epoch.
pub(crate) fn publish(
    nth: usize,
    rank: usize,
    member: &mut Member<'_, Rank>,
    call: &Call,
    protected: bool,
    world: &World,
) -> Result<(), Failure> {
    write(&world.region[rank], value(nth, rank));
    let _published = member.publish(&world.barriers[rank], call, protected)?;
    for (of, part) in world.region.iter().enumerate() {
        let (got, expected) = (read(part), value(nth, of));
        assert!(got == expected, "wrong data: rank {rank} read {got} of {of}, and not {expected}");
    }
    Ok(())
}

/// The end of a rank's read epoch, and the beginning of its next write epoch.
pub(crate) fn reclaim(
    rank: usize,
    member: &mut Member<'_, Rank>,
    call: &Call,
    world: &World,
) -> Result<(), Failure> {
    for part in &world.region {
        read(part);
    }
    let _taken = member.reclaim(&world.barriers[rank], call, true)?;
    write(&world.region[rank], 0);
    Ok(())
}

/// A turn of an exchange: the parts of the one buffer are written, while a slower peer may read the other.
pub(crate) fn turn(
    nth: usize,
    rank: usize,
    member: &mut Member<'_, Rank>,
    call: &Call,
    world: &World,
) -> Result<(), Failure> {
    let buffer = nth % 2;
    write(&world.turns[rank][buffer], value(nth, rank));
    let _published = member.publish(&world.barriers[rank], call, true)?;
    for (of, parts) in world.turns.iter().enumerate() {
        let (got, expected) = (read(&parts[buffer]), value(nth, of));
        assert!(got == expected, "wrong data: rank {rank} read {got} of {of}, and not {expected}");
    }
    Ok(())
}

fn write(part: &Part, value: u64) {
    part.write(|mut view| view.put(0, &value.to_ne_bytes()));
}

fn read(part: &Part) -> u64 {
    part.read(|view| u64::from_ne_bytes(view.array(0)))
}

/// What a rank writes in its `nth` step.
fn value(nth: usize, rank: usize) -> u64 {
    (1000 * nth + rank + 1) as u64
}
