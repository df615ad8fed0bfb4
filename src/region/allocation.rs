//! The allocation of memory that all ranks of a communicator map.
//!
//! 1. The leader creates the memory, and sends a handle, or the reason of its failure: one round.
//! 2. The other ranks open and map it. All ranks exchange whether they succeeded: one round.
//! 3. If one of them failed, all ranks try the next kind of memory.
//! 4. The leader closes the descriptor or removes the name: no process can open the memory any more. The kernel frees it
//!    with the last mapping.
//! 5. If there is too little memory, all ranks give back the segments of the heap without objects, and try once more.
//!
//! So either all ranks have the memory, or all get the same error.

use std::ops::Range;

use crate::codes::Codes;
use crate::collective::allgatherv::gather_words;
use crate::error::Error;
use crate::protocol::Call;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::sys::memory::backing::{self, CreatedShm, Kind, Pages, Refusal, ShmHandle, Words};
use crate::sys::memory::headroom::{Headroom, Limit};
use crate::sys::memory::mapping::Mapping;

/// A request for shared memory. The leader, the length and the pages are the same on all ranks.
pub(crate) struct AllocRequest<'a> {
    pub(crate) call: &'a Call,
    /// The rank that creates the memory.
    pub(crate) leader: usize,
    /// In bytes; `None` if that overflows.
    pub(crate) len: Option<usize>,
    /// The bytes that this rank allocates. The ranks' ranges cover the memory.
    pub(crate) part: Range<usize>,
    pub(crate) pages: Pages,
}

/// The result of a rank's step, as it is sent to the other ranks.
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

    /// Words that encode no status count as a failure: another process may have overwritten them.
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
            Refusal::Memory(headroom) => Status::Memory(*headroom),
            Refusal::System(error) => Status::System(backing::errno(error)),
        }
    }
}

/// Allocates shared memory, if need be in place of segments of the heap without objects. Collective. The leader calls `set_policy`
/// before any page is allocated, and `fill` before the other ranks open the memory. Returns the mapping, and what identifies the
/// memory on all ranks.
pub(crate) fn allocate(
    open: &mut OpenCall<'_>,
    request: &AllocRequest<'_>,
    set_policy: impl Fn(&Mapping),
    fill: impl Fn(&Mapping) -> std::io::Result<()>,
) -> Result<(Mapping, ShmHandle), Error> {
    let heap = &open.rank_state().heap;
    match attempt(open, request, &set_policy, &fill) {
        Err(Error::AllocationFailed { .. }) if request.len.is_some() && heap.table().give_back_all() => {}
        other => return other,
    }
    // The system has the memory again only when every rank has given it back.
    exchange(open, request.call, Status::Done)?;
    attempt(open, request, &set_policy, &fill)
}

fn attempt(
    open: &mut OpenCall<'_>,
    request: &AllocRequest<'_>,
    set_policy: impl Fn(&Mapping),
    fill: impl Fn(&Mapping) -> std::io::Result<()>,
) -> Result<(Mapping, ShmHandle), Error> {
    let AllocRequest { call, leader, .. } = request;
    let rank_state = open.rank_state();
    let mut last = libc::ENOSYS;
    for kind in Kind::ALL.iter().copied() {
        let created =
            (*leader == rank_state.rank).then(|| create(rank_state, kind, request, &set_policy, &fill));
        let status = match &created {
            None => Status::Done,
            Some(Ok(created)) => Status::ShmHandle(created.handle),
            Some(Err(refusal)) => Status::refusal(refusal),
        };
        let offered = exchange(open, call, status)?;
        match first_failure(&offered) {
            None => {}
            Some((rank, Status::Memory(headroom))) => {
                return Err(too_little_memory(open, request, rank, headroom));
            }
            Some((_, failure)) => {
                last = failure.error();
                continue;
            }
        }
        let Status::ShmHandle(handle) = offered[*leader] else {
            // Not a status that a leader sends: another process has overwritten it.
            last = libc::EPROTO;
            continue;
        };
        let memory = match created {
            Some(created) => created.map(Memory::Created),
            // The lengths differ if another process has overwritten the colors of a split.
            None if request.len.is_none_or(|len| len as u64 != handle.len) => {
                Err(std::io::Error::from_raw_os_error(libc::EPROTO).into())
            }
            None => open_shm(rank_state, kind, &handle, request).map(Memory::Mapped),
        };
        let status = memory.as_ref().map_or_else(Status::refusal, |_| Status::Done);
        match first_failure(&exchange(open, call, status)?) {
            None => {}
            Some((rank, Status::Memory(headroom))) => {
                return Err(too_little_memory(open, request, rank, headroom));
            }
            Some((_, failure)) => {
                last = failure.error();
                continue;
            }
        }
        if let Ok(memory) = memory {
            return Ok((memory.into_mapping(), handle));
        }
    }
    let error = std::io::Error::from_raw_os_error(last);
    let reason = format!("the system refuses shared memory: {error}");
    Err(Error::AllocationFailed {
        operation: open.operation(),
        requested_bytes: request.len.unwrap_or(usize::MAX),
        reason: reason.into_boxed_str(),
    })
}

/// The memory on this rank.
enum Memory {
    Created(CreatedShm),
    Mapped(Mapping),
}

impl Memory {
    fn into_mapping(self) -> Mapping {
        match self {
            Memory::Created(created) => created.hide(),
            Memory::Mapped(mapping) => mapping,
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

fn create(
    rank_state: &RankState,
    kind: Kind,
    request: &AllocRequest<'_>,
    set_policy: impl Fn(&Mapping),
    fill: impl Fn(&Mapping) -> std::io::Result<()>,
) -> Result<CreatedShm, Refusal> {
    let len = request.len.ok_or_else(backing::too_long)?;
    check_kind(rank_state, kind)?;
    let created = backing::make(kind, &rank_state.job, len, request.part.clone(), request.pages, set_policy)?;
    fill(&created.mapping)?;
    Ok(created)
}

fn open_shm(
    rank_state: &RankState,
    kind: Kind,
    handle: &ShmHandle,
    request: &AllocRequest<'_>,
) -> Result<Mapping, Refusal> {
    check_kind(rank_state, kind)?;
    backing::find(&rank_state.job, handle, request.part.clone(), request.pages)
}

/// With `INTRANODE_MEMORY=named`: refuses memfds, like a system on which ranks cannot open each other's descriptors.
fn check_kind(rank_state: &RankState, kind: Kind) -> Result<(), Refusal> {
    let refused = kind == Kind::Memfd && rank_state.settings.named_memory;
    if refused { Err(std::io::Error::from_raw_os_error(libc::EPERM).into()) } else { Ok(()) }
}

fn exchange(open: &mut OpenCall<'_>, call: &Call, status: Status) -> Result<Vec<Status>, Error> {
    let all = gather_words(open, call, status.encode())?;
    Ok(all.into_iter().map(Status::decode).collect())
}

/// The failure that all ranks report: the first lack of memory; without one, the failure of the lowest rank.
fn first_failure(all: &[Status]) -> Option<(usize, Status)> {
    let mut failures = all.iter().copied().enumerate().filter(|(_, status)| match status {
        Status::Memory(_) | Status::System(_) => true,
        Status::Done | Status::ShmHandle(_) => false,
    });
    let first = failures.next()?;
    let memory = |(_, status): &(usize, Status)| matches!(status, Status::Memory(_));
    Some(if memory(&first) { first } else { failures.find(memory).unwrap_or(first) })
}

fn too_little_memory(
    open: &OpenCall<'_>,
    request: &AllocRequest<'_>,
    rank: usize,
    headroom: Headroom,
) -> Error {
    let Headroom { bytes, limit } = headroom;
    let reason = match limit {
        Limit::AddressSpace => format!("that is more than {limit} has"),
        _ => format!("on rank {rank} {bytes} bytes are available within {limit}; request less, or raise it"),
    };
    Error::AllocationFailed {
        operation: open.operation(),
        requested_bytes: request.len.unwrap_or(usize::MAX),
        reason: reason.into_boxed_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoded_status_equals_the_encoded_one() {
        let headroom = Headroom { bytes: 12345, limit: Limit::FileSystem };
        for status in [Status::Done, Status::Memory(headroom), Status::System(libc::EPERM)] {
            assert_eq!(Status::decode(status.encode()), status);
        }
    }

    #[test]
    fn words_that_encode_no_status_are_a_failure() {
        for words in [[0; 7], [3, 1, 99, 0, 0, 0, 0], [2, 99, 0, 0, 0, 0, 0], [u64::MAX; 7]] {
            assert!(matches!(Status::decode(words), Status::System(_)), "{words:?}");
        }
    }

    #[test]
    fn a_lack_of_memory_precedes_other_failures() {
        let memory = Status::Memory(Headroom { bytes: 1, limit: Limit::Machine });
        assert_eq!(first_failure(&[Status::Done, Status::System(1), memory, Status::Done]), Some((2, memory)));
        assert_eq!(
            first_failure(&[Status::Done, Status::System(1), Status::System(2)]),
            Some((1, Status::System(1)))
        );
        assert_eq!(first_failure(&[Status::Done, Status::Done]), None);
    }
}
