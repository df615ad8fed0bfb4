//! What a message is known by.

/// The rank that a message is received from.
///
/// ```
/// use intranode::Source;
///
/// assert_eq!(Source::from(3), Source::Rank(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// This rank.
    Rank(usize),
    /// Any rank: the message that came first, and of several that come at once one after the other in turns.
    Any,
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Source::Rank(rank)
    }
}

/// The tag of a message that is received.
///
/// ```
/// use intranode::Tag;
///
/// assert_eq!(Tag::from(7), Tag::Is(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// This tag. All 64 bits are the program's.
    Is(u64),
    /// Any tag.
    Any,
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Tag::Is(tag)
    }
}

/// Who sent a message, with which tag, and how long it is.
///
/// ```
/// use intranode::{Envelope, Source, Tag};
///
/// let envelopes = intranode::threads(2, |comm| {
///     let mut messages = comm.messages()?;
///     if comm.rank() == 0 {
///         messages.send(&[1.5, 2.5], 1, 9)?;
///         return Ok(None);
///     }
///     messages.recv(&mut [0.0; 2], Source::Any, Tag::Any).map(Some)
/// })?;
/// let Ok(Some(Envelope { source, tag, bytes, .. })) = envelopes[1] else { panic!("{envelopes:?}") };
/// assert_eq!((source, tag, bytes), (0, 9, 16));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Envelope {
    /// The rank that sent it.
    pub source: usize,
    /// Its tag.
    pub tag: u64,
    /// Its length, in bytes.
    pub bytes: usize,
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Source,
    pub(crate) tag: Tag,
}

impl Pattern {
    #[inline]
    pub(crate) fn matches(&self, envelope: &Envelope) -> bool {
        let source = match self.source {
            Source::Rank(rank) => rank == envelope.source,
            Source::Any => true,
        };
        source && (self.tag == Tag::Any || self.tag == Tag::Is(envelope.tag))
    }

    /// The only rank that can send it.
    #[inline]
    pub(crate) fn rank(&self) -> Option<usize> {
        match self.source {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        }
    }
}
