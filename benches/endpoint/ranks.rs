//! The same calls by the messages between two ranks of a job.

use std::process::Command;

use anyhow::Result;
use intranode::{Communicator, Config, Messages, Tag};
use nix::sys::signal::Signal;

use crate::block::Client;
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
}

impl Client for Ranks {
    #[inline]
    fn call(&mut self, number: u64) -> Result<()> {
        Ok(self.messages.send(&[number], 1, number)?)
    }

    #[inline]
    fn answer(&mut self, number: u64) -> Result<u64> {
        let mut answer = [0];
        self.messages.recv(&mut answer, 1, number)?;
        Ok(answer[0])
    }
}
