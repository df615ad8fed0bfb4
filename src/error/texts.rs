//! Parts of the texts of errors.

use crate::error::{CallSummary, InvalidSetting, Operation, TimeoutInfo};

pub(super) fn timed_out(operation: Operation, late: &[usize], info: &TimeoutInfo) -> String {
    let (late, timeout) = (ranks(late), info.timeout.unwrap_or_default());
    match operation {
        Operation::Send => format!(
            "send: {late} did not receive within {timeout:?}; does it wait for this rank, or is it frozen or busy?"
        ),
        // Of a long one it may know, and wait for its sender to send the rest.
        Operation::Recv => {
            format!("recv: no message that matches came completely within {timeout:?} from {late}")
        }
        Operation::Probe => format!("probe: no message that matches came within {timeout:?} from {late}"),
        _ => format!(
            "{operation}, round {}: {late} did not arrive within {timeout:?}; they are frozen, dead, or busy for longer than \
             the time-out",
            info.round
        ),
    }
}

pub(super) fn left(operation: Operation, round: u32, rank: usize, rounds: u32) -> String {
    if operation.is_of_messages() {
        return format!("{operation}: rank {rank} has dropped its messages, so it sends and receives no more");
    }
    format!(
        "{operation}, round {round}: rank {rank} has left after {rounds} rounds: it has dropped its communicator, which each rank \
         needs until the last call, also of its regions and symmetric objects"
    )
}

pub(super) fn list(calls: &[CallSummary]) -> String {
    let calls: Vec<String> = calls.iter().map(CallSummary::to_string).collect();
    calls.join("; ")
}

pub(super) fn ranks(late: &[usize]) -> String {
    let names: Vec<String> = late.iter().map(usize::to_string).collect();
    match names.as_slice() {
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

pub(super) fn setting(bad: &InvalidSetting) -> String {
    let InvalidSetting { setting, value, allowed } = bad;
    match value {
        Some(value) => format!("{setting} is {value:?}; allowed is {allowed}"),
        None => format!("{setting} is not set; it must be {allowed}"),
    }
}
