//! The buffers that ranks send from: where they lie, and whether they are written again before each call.

use std::ops::{Deref, DerefMut};

use clap::ValueEnum;
use intranode::{Buffer, Communicator, Error, Own, Symmetric};
use serde::Serialize;

/// When the payload is written: the two definitions of a collective's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Buffers {
    /// Before each call
    #[default]
    Renewed,
    /// Once: the calls use the same buffers again, as in the OSU benchmarks
    Unchanged,
}

/// Which memory the payload lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memory {
    /// The rank's own
    #[default]
    Private,
    /// A symmetric object, which all ranks map
    Shared,
    /// A buffer of the rank, which the others map when they need it
    Buffer,
}

/// A buffer to send from.
pub(crate) enum Payload {
    Private(Vec<f64>),
    /// An object has the same length on every rank; this rank uses the first values.
    Shared(Symmetric<f64, Own>, usize),
    Buffer(Buffer<f64>),
}

impl Payload {
    /// `len` values on this rank, and at most `longest` on any. Collective.
    pub(super) fn new(memory: Memory, len: usize, longest: usize, comm: &Communicator) -> Result<Self, Error> {
        Ok(match memory {
            Memory::Private => Payload::Private(vec![0.0; len]),
            Memory::Shared => Payload::Shared(comm.symmetric(longest)?.into_own()?, len),
            Memory::Buffer => Payload::Buffer(comm.buffer(len)?),
        })
    }
}

impl Deref for Payload {
    type Target = [f64];

    #[inline(always)]
    fn deref(&self) -> &[f64] {
        match self {
            Payload::Private(values) => values,
            Payload::Shared(object, len) => &object[..*len],
            Payload::Buffer(values) => values,
        }
    }
}

impl DerefMut for Payload {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f64] {
        match self {
            Payload::Private(values) => values,
            Payload::Shared(object, len) => &mut object[..*len],
            Payload::Buffer(values) => values,
        }
    }
}
