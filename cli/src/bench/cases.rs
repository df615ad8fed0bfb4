//! The cases of the benchmark, which are the same on every rank.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::measure::Budget;
use super::operation::Operation;
use super::payload::{Buffers, Memory};

#[derive(Args, Clone)]
pub(crate) struct Cases {
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub(super) json: bool,

    /// Only this operation; can be repeated
    #[arg(long = "op", value_name = "OP")]
    operations: Vec<Operation>,

    /// Only this size, a multiple of 8; can be repeated. It is the total that a rank receives (allgatherv), the length of a
    /// block (gather, scatter, alltoall, reduce-scatter), or that of the buffer
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bytes: Vec<usize>,

    /// When the payload of a collective, or of a ping-pong, is written: before each call, or once; can be repeated
    #[arg(long, value_name = "WHEN", default_value = "renewed")]
    buffers: Vec<Buffers>,

    /// Which memory the payload of a collective or of a message lies in
    #[arg(long, value_name = "MEMORY", default_value = "private")]
    memory: Memory,

    /// The approximate time for each line
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: Duration,

    /// The number of repetitions of each line, whatever their time [default: as many as fit into the seconds]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
}

/// What one line measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) operation: Operation,
    pub(super) bytes: usize,
    pub(super) buffers: Buffers,
    pub(super) memory: Memory,
}

impl Cases {
    pub(super) fn list(&self) -> Vec<Case> {
        let operations =
            if self.operations.is_empty() { Operation::value_variants() } else { &self.operations };
        let sizes = |operation: Operation| {
            let by_default = operation.has_one_size() || self.bytes.is_empty();
            if by_default { operation.default_bytes() } else { &self.bytes }
        };
        operations
            .iter()
            .flat_map(|&operation| sizes(operation).iter().map(move |&bytes| (operation, bytes)))
            .flat_map(|(operation, bytes)| {
                self.definitions(operation).map(move |case| Case { operation, bytes, ..case })
            })
            .collect()
    }

    /// What else is chosen about a case. Some operations have one definition, and one memory.
    fn definitions(&self, operation: Operation) -> impl Iterator<Item = Case> {
        let buffers = if operation.has_two_definitions() { &self.buffers[..] } else { &[Buffers::Renewed] };
        let memory = if operation.has_payload() { self.memory } else { Memory::Private };
        buffers.iter().map(move |&buffers| Case { operation, bytes: 0, buffers, memory })
    }

    /// The budget of each line.
    pub(super) fn budget(&self) -> Budget {
        Budget { time: self.seconds, repetitions: self.repetitions }
    }

    /// The arguments that result in these cases.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--seconds".to_owned(), self.seconds.as_secs_f64().to_string()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        for operation in self.operations.iter().filter_map(ValueEnum::to_possible_value) {
            option("--op", operation.get_name().to_owned());
        }
        for bytes in &self.bytes {
            option("--bytes", bytes.to_string());
        }
        for buffers in self.buffers.iter().filter_map(ValueEnum::to_possible_value) {
            option("--buffers", buffers.get_name().to_owned());
        }
        if let Some(memory) = self.memory.to_possible_value() {
            option("--memory", memory.get_name().to_owned());
        }
        if let Some(repetitions) = self.repetitions {
            option("--repetitions", repetitions.to_string());
        }
        if self.json {
            arguments.push("--json".to_owned());
        }
        arguments
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if bytes == 0 || !bytes.is_multiple_of(size_of::<f64>()) {
        return Err("a positive multiple of 8 is expected, since the elements are f64".to_owned());
    }
    Ok(bytes)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cases: Cases,
    }

    fn parse(arguments: &[String]) -> Cases {
        Line::parse_from([String::new()].iter().chain(arguments)).cases
    }

    #[test]
    fn ranks_get_the_cases_that_the_user_asked_for() {
        let given = "--op broadcast --op barrier --bytes 8 --bytes 16 --buffers renewed --buffers unchanged --memory shared";
        let given: Vec<String> = given.split(' ').map(String::from).collect();
        let passed_on = parse(&parse(&given).arguments());
        let (broadcast, barrier) = (Operation::Broadcast, Operation::Barrier);
        let case = |operation, bytes, buffers, memory| Case { operation, bytes, buffers, memory };
        let expected = [
            case(broadcast, 8, Buffers::Renewed, Memory::Shared),
            case(broadcast, 8, Buffers::Unchanged, Memory::Shared),
            case(broadcast, 16, Buffers::Renewed, Memory::Shared),
            case(broadcast, 16, Buffers::Unchanged, Memory::Shared),
            // There is nothing to write.
            case(barrier, 0, Buffers::Renewed, Memory::Private),
        ];
        assert_eq!(passed_on.list(), expected);
    }

    #[test]
    fn every_operation_is_measured_by_default() {
        let cases = parse(&[]).list();
        for operation in Operation::value_variants() {
            let bytes: Vec<usize> =
                cases.iter().filter(|case| case.operation == *operation).map(|case| case.bytes).collect();
            assert_eq!(bytes, operation.default_bytes());
        }
    }

    #[test]
    fn sizes_are_whole_elements() {
        assert_eq!(bytes("16"), Ok(16));
        for wrong in ["0", "12", "-8", "x"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
