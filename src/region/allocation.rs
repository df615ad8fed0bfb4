//! How ranks come to share new memory.
//!
//! 1. A leader makes the memory, and tells everybody how to find it, or why there is none: one round.
//! 2. The others find and map it. All tell each other whether that has worked: one round.
//! 3. If it has not, for any of them, all try the next kind of memory together.
//! 4. Nobody can find the memory any more. It lives as long as somebody has it mapped.
//!
//! So all ranks have it, or none has and all get the same error.

use std::ops::Range;

use crate::codes::Codes;
use crate::collective::allgatherv::gather_words;
use crate::error::Error;
use crate::protocol::Call;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::sys::memory::backing::{self, CreatedShm, Kind, Refusal, ShmHandle, Words};
use crate::sys::memory::headroom::{Headroom, Limit};
use crate::sys::memory::mapping::Mapping;

/// What memory a rank wants to share, and with whom.
pub(crate) struct AllocRequest<'a> {
    pub(crate) call: &'a Call,
    /// The rank that makes it.
    pub(crate) leader: usize,
    /// Its length in bytes; `None` if that is no number.
    pub(crate) len: Option<usize>,
    /// The bytes that this rank allocates. Together the ranks allocate all.
    pub(crate) part: Range<usize>,
    /// Whether it may come to have huge pages.
    pub(crate) huge: bool,
}

/// What a rank says of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Done,
    ShmHandle(ShmHandle),
    Memory(Headroom),
    System(i32),
}

impl Status {
    fn encode(self) -> [u64; 7] {
        let (tag, [a, b, c, d, e, f]): (u64, Words) = match self {
            Status::Done => (1, [0; 6]),
            Status::ShmHandle(handle) => (2, handle.encode()),
            Status::Memory(Headroom { bytes, limit }) => (3, [bytes, limit as u64, 0, 0, 0, 0]),
            Status::System(error) => (4, [error as u64, 0, 0, 0, 0, 0]),
        };
        [tag, a, b, c, d, e, f]
    }

    /// What no rank can have status is taken for a failure.
    fn decode([tag, a, b, c, d, e, f]: [u64; 7]) -> Self {
        let limit = || u32::try_from(b).ok().and_then(Limit::from_code);
        match tag {
            1 => Some(Status::Done),
            2 => ShmHandle::decode([a, b, c, d, e, f]).map(Status::ShmHandle),
            3 => limit().map(|limit| Status::Memory(Headroom { bytes: a, limit })),
            _ => Some(Status::System(a as i32)),
        }
        .unwrap_or(Status::System(libc::EPROTO))
    }

    fn refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Memory(left) => Status::Memory(*left),
            Refusal::System(error) => Status::System(backing::errno(error)),
        }
    }
}

/// Shares memory. Collective. `place` is called for the memory before any of it is allocated, and `fill` before the
/// others find it, by the leader only. Returns with the memory the number that it has among its leader's.
pub(crate) fn allocate(
    open: &mut OpenCall<'_>,
    wanted: &AllocRequest<'_>,
    place: impl Fn(&Mapping),
    fill: impl Fn(&Mapping) -> std::io::Result<()>,
) -> Result<(Mapping, u64), Error> {
    let AllocRequest { call, leader, .. } = wanted;
    let seat = open.rank_state();
    let mut last = libc::ENOSYS;
    for kind in Kind::ALL.iter().copied() {
        let made = (*leader == seat.rank).then(|| make(seat, kind, wanted, &place, &fill));
        let status = match &made {
            None => Status::Done,
            Some(Ok(made)) => Status::ShmHandle(made.handle),
            Some(Err(refusal)) => Status::refusal(refusal),
        };
        let offers = exchange(open, call, status)?;
        match verdict(&offers) {
            None => {}
            Some((rank, Status::Memory(left))) => return Err(no_memory(open, wanted, rank, left)),
            Some((_, failure)) => {
                last = failure.error();
                continue;
            }
        }
        let Status::ShmHandle(handle) = offers[*leader] else {
            // No rank that uses this library says that.
            last = libc::EPROTO;
            continue;
        };
        let found = match made {
            Some(made) => made.map(Found::CreatedShm),
            // What somebody has written over the colors of a split makes ranks want different lengths.
            None if wanted.len.is_none_or(|len| len as u64 != handle.len) => {
                Err(std::io::Error::from_raw_os_error(libc::EPROTO).into())
            }
            None => find(seat, kind, &handle, wanted).map(Found::Mapped),
        };
        let status = found.as_ref().map_or_else(Status::refusal, |_| Status::Done);
        match verdict(&exchange(open, call, status)?) {
            None => {}
            Some((rank, Status::Memory(left))) => return Err(no_memory(open, wanted, rank, left)),
            Some((_, failure)) => {
                last = failure.error();
                continue;
            }
        }
        if let Ok(found) = found {
            return Ok((found.mapping(), handle.number));
        }
    }
    let error = std::io::Error::from_raw_os_error(last);
    let reason = format!("the system gives no shared memory: {error}");
    Err(Error::AllocationFailed {
        operation: open.operation(),
        requested_bytes: wanted.len.unwrap_or(usize::MAX),
        reason: reason.into_boxed_str(),
    })
}

/// The memory on this rank.
enum Found {
    CreatedShm(CreatedShm),
    Mapped(Mapping),
}

impl Found {
    fn mapping(self) -> Mapping {
        match self {
            Found::CreatedShm(made) => made.hide(),
            Found::Mapped(mapping) => mapping,
        }
    }
}

impl Status {
    fn error(self) -> i32 {
        match self {
            Status::System(error) => error,
            _ => libc::EPROTO,
        }
    }
}

fn make(
    seat: &RankState,
    kind: Kind,
    wanted: &AllocRequest<'_>,
    place: impl Fn(&Mapping),
    fill: impl Fn(&Mapping) -> std::io::Result<()>,
) -> Result<CreatedShm, Refusal> {
    let len = wanted.len.ok_or_else(backing::too_long)?;
    check_kind(seat, kind)?;
    let made = backing::make(kind, &seat.job, len, wanted.part.clone(), wanted.huge, place)?;
    fill(&made.mapping)?;
    Ok(made)
}

fn find(
    seat: &RankState,
    kind: Kind,
    handle: &ShmHandle,
    wanted: &AllocRequest<'_>,
) -> Result<Mapping, Refusal> {
    check_kind(seat, kind)?;
    backing::find(&seat.job, handle, wanted.part.clone(), wanted.huge)
}

/// Refuses memfds on a rank that was told so, as a system does where ranks cannot open each other's.
fn check_kind(seat: &RankState, kind: Kind) -> Result<(), Refusal> {
    let refused = kind == Kind::Memfd && seat.settings.named_memory;
    if refused { Err(std::io::Error::from_raw_os_error(libc::EPERM).into()) } else { Ok(()) }
}

fn exchange(open: &mut OpenCall<'_>, call: &Call, status: Status) -> Result<Vec<Status>, Error> {
    let all = gather_words(open, call, status.encode())?;
    Ok(all.into_iter().map(Status::decode).collect())
}

/// The failure that counts, the same on every rank: a lack of memory before any other, then the first rank's.
fn verdict(all: &[Status]) -> Option<(usize, Status)> {
    let mut failures = all.iter().copied().enumerate().filter(|(_, status)| match status {
        Status::Memory(_) | Status::System(_) => true,
        Status::Done | Status::ShmHandle(_) => false,
    });
    let first = failures.next()?;
    let memory = |(_, status): &(usize, Status)| matches!(status, Status::Memory(_));
    Some(if memory(&first) { first } else { failures.find(memory).unwrap_or(first) })
}

fn no_memory(open: &OpenCall<'_>, wanted: &AllocRequest<'_>, rank: usize, left: Headroom) -> Error {
    let Headroom { bytes, limit } = left;
    let reason = match limit {
        Limit::AddressSpace => format!("that is more than {limit} has"),
        _ => format!("rank {rank} found {bytes} bytes available within {limit}; ask for less, or raise it"),
    };
    Error::AllocationFailed {
        operation: open.operation(),
        requested_bytes: wanted.len.unwrap_or(usize::MAX),
        reason: reason.into_boxed_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let left = Headroom { bytes: 12345, limit: Limit::FileSystem };
        for status in [Status::Done, Status::Memory(left), Status::System(libc::EPERM)] {
            assert_eq!(Status::decode(status.encode()), status);
        }
    }

    #[test]
    fn what_nobody_says_is_a_failure() {
        for words in [[0; 7], [3, 1, 99, 0, 0, 0, 0], [2, 99, 0, 0, 0, 0, 0], [u64::MAX; 7]] {
            assert!(matches!(Status::decode(words), Status::System(_)), "{words:?}");
        }
    }

    #[test]
    fn a_lack_of_memory_counts_before_other_failures() {
        let memory = Status::Memory(Headroom { bytes: 1, limit: Limit::Machine });
        assert_eq!(verdict(&[Status::Done, Status::System(1), memory, Status::Done]), Some((2, memory)));
        assert_eq!(
            verdict(&[Status::Done, Status::System(1), Status::System(2)]),
            Some((1, Status::System(1)))
        );
        assert_eq!(verdict(&[Status::Done, Status::Done]), None);
    }
}
