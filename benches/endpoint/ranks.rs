//! The same calls by the messages between two ranks of a job.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::{Communicator, Config, Messages, Tag};
use nix::sys::signal::Signal;

use crate::block::repeated;
use crate::ours::AWAKE;
use crate::process::{Server, bind, processors};

/// By which this program knows that it is the rank that serves.
pub(crate) const SERVE: &str = "--serve-rank";

fn join(name: &str, rank: usize) -> Result<Communicator> {
    Ok(Config::new(name, rank, 2).spin(AWAKE).timeout(None).join()?)
}

/// Rank 1: answers messages with what it gets, until rank 0 leaves.
pub(crate) fn serve(name: &str, processor: usize) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    bind(processor)?;
    let comm = join(name, 1)?;
    let (mut messages, mut data) = (comm.messages()?, [0u64]);
    while let Ok(call) = messages.recv(&mut data, 0, Tag::Any) {
        messages.send(&data, 0, call.tag)?;
    }
    Ok(())
}

/// Rank 0, and the process of rank 1.
pub(crate) struct Ranks {
    messages: Messages,
    _comm: Communicator,
    _server: Server,
}

impl Ranks {
    pub(crate) fn start() -> Result<Self> {
        let name = format!("/bench-{}-ranks", std::process::id());
        let processor = processors()?[1].to_string();
        let server = Server::start(Command::new(std::env::current_exe()?).args([SERVE, &name, &processor]))?;
        let comm = join(&name, 0)?;
        Ok(Ranks { messages: comm.messages()?, _comm: comm, _server: server })
    }

    /// Microseconds of a call, with this number in flight.
    pub(crate) fn calls(&mut self, in_flight: u64, length: Duration) -> Result<f64> {
        let (messages, mut next, mut answer) = (&mut self.messages, in_flight, [0]);
        for tag in 0..in_flight {
            messages.send(&[tag], 1, tag)?;
        }
        let seconds = repeated(length, || {
            for _ in 0..16 {
                let tag = next - in_flight;
                messages.recv(&mut answer, 1, tag)?;
                ensure!(answer == [tag], "{answer:?} instead of {tag}");
                messages.send(&[next], 1, next)?;
                next += 1;
            }
            Ok(())
        })?;
        for tag in next - in_flight..next {
            messages.recv(&mut answer, 1, tag)?;
        }
        Ok(seconds * 1e6 / 16.0)
    }
}
