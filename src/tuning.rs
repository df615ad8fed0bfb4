//! The figures on which speed depends, in one table. None decides whether a result is right.
//!
//! Each has its unit in its name or type, and says where it comes from: a measurement (docs/performance.md has the
//! tables, docs/adr the decisions), the processor's manual, or an estimate.

use core::ops::{RangeFrom, RangeInclusive};
use core::time::Duration;

// ---- Staging (protocol/staging.rs)

/// The most bytes of a rank's block that go through staging in one round. Long enough for the cost of a round not to
/// count, short enough for what was written to be read from a cache. Measured: 256 KiB to 1 MiB are within 5 %.
pub const CHUNK_BYTES: usize = 512 << 10;

/// The chunks that a block of a single sender is divided into, if they have [`LEAST_CHUNK_BYTES`]. Nobody has anything
/// else to do while the first is written and the last is read. Measured.
pub const CHUNKS_OF_ONE_SENDER: usize = 8;

/// The shortest of these. Measured.
pub const LEAST_CHUNK_BYTES: usize = 64 << 10;

/// The shortest of these with two ranks, where one more round takes least: a block of two of these, or somewhat more, goes in
/// halves. Measured on AMD: 64 KiB take 0.65 to 0.89 of the time between cores with a common cache, and 0.97 to 1.05 without. In
/// chunks of this length 256 KiB take 1.02 to 1.22 (docs/adr/0028).
pub const LEAST_CHUNK_BYTES_OF_TWO: usize = 32 << 10;

/// The most bytes of contributions to a reduction in one round. Measured.
pub const FOLDED_CHUNK_BYTES: usize = 1 << 20;

/// The shortest chunk of a reduction of two ranks to one of them, which is divided like a block of a single sender. Measured: a
/// reduce of 64 KiB takes 0.78 of the time in one chunk between two threads of a core, and as long between two cores.
pub const LEAST_STREAMED_BYTES: usize = 32 << 10;

/// The longest of these. Measured: a reduce of 1 MiB takes 0.64 to 0.75 of the time by slices.
pub const MOST_STREAMED_BYTES: usize = 128 << 10;

/// What the buffers of both parities, of all ranks together, rotate through: the size of the last-level cache of a small
/// machine. By the time a line comes round again, others have pushed it out of its readers' caches, and it is written
/// without an RFO that waits for them. Measured.
pub const ROTATION_BYTES: usize = 4 << 20;

/// Up to how many bytes a block that two ranks exchange is written where the other's was read. Longer ones leave the caches in between: between distant
/// processors a block of 256 KiB took 1.2 of the time, of 64 KiB 0.8. Measured: docs/adr/0067-what-was-read-is-written-next.md.
pub const EXCHANGED_IN_PLACE_BYTES: usize = 64 << 10;

/// Shorter chunks do not rotate: for so few lines the way to memory is longer than the RFO. Measured.
pub const ROTATION_FROM_BYTES: usize = 2 << 10;

// ---- Reductions (protocol/allreduce.rs)

/// From how many bytes on folding in slices pays for one more round. With two ranks it does late: each still reads as
/// much, though it folds half as much. With many it does early: otherwise each reads what all have contributed. Measured
/// at 2, 4 and 8 ranks, an estimate beyond.
pub const fn fold_slices_from_bytes(ranks: usize) -> usize {
    match ranks {
        ..=2 => 512 << 10,
        3..=8 => 8 << 10,
        _ => (128 << 10) / ranks,
    }
}

/// The most bytes of contributions to a short reduction that are prefetched after its round. Measured (docs/adr/0050).
pub const PREFETCH_CONTRIBUTIONS_BYTES: usize = 8 << 10;

// ---- Barrier (protocol/barrier.rs), and what is prefetched behind it (protocol/prefetch.rs)

/// The most bytes of staging that are prefetched for write ahead of a call. Measured on AMD: more take longer than reading the others'
/// data, and compete with it.
pub(crate) const PREFETCH_FOR_WRITE_BYTES: usize = 512;

/// The same on Intel's processors, where an RFO takes longer. Measured, as the next: docs/adr/0062-longer-prefetches-for-write-on-intel.md.
pub(crate) const PREFETCH_FOR_WRITE_BYTES_ON_INTEL: usize = 16 << 10;

/// How much a rank prefetches there that has nothing to do while a root reads what it has written.
pub(crate) const PREFETCH_WHILE_WAITING_BYTES_ON_INTEL: usize = 64 << 10;

/// From this number of ranks on the barrier is hierarchical, if each rank has a processor. By the model of lines that is
/// `cargo bench --bench contention`; no machine of that size was measured (docs/adr/0001).
pub(crate) const HIERARCHICAL_FROM_RANKS: usize = 24;

/// The most groups of a hierarchical barrier. By the same model.
pub(crate) const GROUPS: usize = 8;

/// The ranks that a group has at least, but for one of what is left. By the same model.
pub(crate) const LEAST_GROUP_RANKS: usize = 8;

// ---- Single copy (protocol/single_copy.rs, rank/cma_peers.rs)

/// From how many bytes on a block is read where it lies: for shorter ones `process_vm_readv` costs more than the second copy.
#[derive(Clone, Copy)]
pub(crate) struct SingleCopyFrom {
    /// With a processor for each rank.
    pub(crate) usual: usize,
    /// With more ranks than processors. Measured: docs/adr/0074-single-copy-if-oversubscribed.md.
    pub(crate) oversubscribed: usize,
}

/// For the blocks of an allgatherv. Measured on Intel.
pub(crate) const SINGLE_COPY_FROM: SingleCopyFrom =
    SingleCopyFrom { usual: 384 << 10, oversubscribed: 384 << 10 };

/// The same for a block of an alltoall, and on average for those that a rank sends in an alltoallv. Measured likewise, as the next:
/// docs/adr/0053-alltoall-and-scatter-by-single-copy.md, docs/adr/0060-blocks-in-rank-order.md.
pub(crate) const ALLTOALL_SINGLE_COPY_FROM: SingleCopyFrom =
    SingleCopyFrom { usual: 64 << 10, oversubscribed: 128 << 10 };

/// The same for a block of a scatter, in which others read while the root has nothing to do but copy its own block.
pub(crate) const SCATTER_SINGLE_COPY_FROM: SingleCopyFrom =
    SingleCopyFrom { usual: 768 << 10, oversubscribed: 256 << 10 };

/// The lengths of the block of a broadcast that is fetched if it does not change: others read it in their own caches, until it is too long
/// for these. Measured on Intel, as the next two: docs/adr/0057-each-rank-decides-for-its-block.md.
pub(crate) const BROADCAST_UNCHANGED_SINGLE_COPY_BYTES: RangeInclusive<usize> = 256 << 10..=2 << 20;

/// The same for each block of a scatter.
pub(crate) const SCATTER_UNCHANGED_SINGLE_COPY_BYTES: RangeFrom<usize> = 256 << 10..;

/// The same for each block of an allgatherv.
pub(crate) const ALLGATHERV_UNCHANGED_SINGLE_COPY_BYTES: RangeFrom<usize> = 64 << 10..;

/// Up to this number of ranks the block of a broadcast is. An estimate: all but the root count references to the same pages at once.
pub(crate) const BROADCAST_SINGLE_COPY_RANKS: usize = 4;

/// In calls of this many bytes in all, and more, no block is: they are better stored non-temporally, which the system does not do.
pub const SINGLE_COPY_BELOW_BYTES: usize = RECEIVE_NON_TEMPORAL_FROM_BYTES;

/// The bytes of one `process_vm_readv`: few enough for a rank's death not to go unnoticed for long (some 100 µs).
pub const SINGLE_COPY_PIECE_BYTES: usize = 1 << 20;

/// The bytes that a call over buffers which other threads may write reads by single copy at a time: they pass through private
/// memory, which the caches of a core have room for. An estimate.
pub(crate) const RAW_SINGLE_COPY_BYTES: usize = 128 << 10;

/// From how many bytes on a block that all ranks map is read where it lies, also if it changes.
#[derive(Clone, Copy)]
pub(crate) struct InPlaceFrom {
    /// Measured on AMD. For shorter ones the second round costs more than the second copy; and lines that others have read need an RFO when they
    /// are written again.
    pub(crate) usual: usize,
    /// The same on Intel's processors; where ranks share them, for each rank of the job. Measured with 2 ranks, with the time for writing:
    /// docs/adr/0059.
    pub(crate) on_intel: usize,
}

/// What several ranks send, or each rank reads a part of.
const SEVERAL_IN_PLACE_FROM_BYTES_ON_INTEL: usize = 64 << 10;

/// What one rank alone reads.
const ONE_IN_PLACE_FROM_BYTES_ON_INTEL: usize = 256 << 10;

/// Of any length.
pub(crate) const IN_PLACE_FROM_ANY: InPlaceFrom = InPlaceFrom { usual: 0, on_intel: 0 };

/// A block of an allgatherv.
pub(crate) const ALLGATHERV_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 1 << 20, on_intel: SEVERAL_IN_PLACE_FROM_BYTES_ON_INTEL };

/// The block of a rank in a gather. That of the allgatherv, which has the same rounds. Measured, as the next, with 2 and 4 ranks on 2 processors
/// of AMD that others used too, the least of 60 calls: 0.35 to 0.86 of the time through staging from here to 16 MiB, in every cell. Of shorter
/// ones the call takes less time, and the program that writes them more: two ranks that write all of 64 KiB a block, and then call, take 1.8 of
/// the time through staging with an alltoall, 2.0 with a scatter, 2.2 with a gather; of 1 MiB 0.8, 1.2 and 0.8 (docs/buffers.md).
pub(crate) const GATHER_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 1 << 20, on_intel: ONE_IN_PLACE_FROM_BYTES_ON_INTEL };

/// All blocks of a rank together in an alltoall.
pub(crate) const ALLTOALL_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 1 << 20, on_intel: SEVERAL_IN_PLACE_FROM_BYTES_ON_INTEL };

/// The block of a broadcast, whose root overlaps its copy with those of the others. On Intel's processors it pays from 256 KiB on; but for four
/// ranks on two of them not before 4 MiB, which is a MiB for each.
pub(crate) const BROADCAST_IN_PLACE_FROM: InPlaceFrom = InPlaceFrom { usual: 4 << 20, on_intel: 1 << 20 };

/// A contribution to a reduction that is folded in slices, which need no second round for it.
pub(crate) const REDUCE_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 512 << 10, on_intel: ONE_IN_PLACE_FROM_BYTES_ON_INTEL };

/// The same where ranks fold whole contributions. It was not measured on AMD: there they are read in place as long as they do not change.
pub(crate) const REDUCE_WHOLE_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: usize::MAX, on_intel: ONE_IN_PLACE_FROM_BYTES_ON_INTEL };

/// All blocks of the root of a scatter. That of the broadcast, which has the same rounds. Measured like that of a gather: 0.38 to 0.59.
pub(crate) const SCATTER_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 4 << 20, on_intel: SEVERAL_IN_PLACE_FROM_BYTES_ON_INTEL };

/// Blocks from this size on are read in place if they lie where all find them and have not changed since they were sent last: then
/// no writer pays an RFO. Measured with 2 ranks: 0.39 to 0.86 of the time through staging from here to 256 KiB in buffers, 0.30 to
/// 1.01 in symmetric objects (docs/adr/0035). Where ranks share processors, from as many bytes for each rank: measured with 4 and 8 on
/// two, 0.56 to 1.29 of the time from there on, and 0.82 to 1.74 of shorter ones.
pub(crate) const UNCHANGED_IN_PLACE_FROM_BYTES: usize = 8 << 10;

/// The same for a broadcast, in which the second round saves the copy of one rank only. Measured (docs/adr/0051, docs/adr/0058).
pub(crate) const BROADCAST_UNCHANGED_IN_PLACE_FROM: InPlaceFrom =
    InPlaceFrom { usual: 12 << 10, on_intel: UNCHANGED_IN_PLACE_FROM_BYTES };

/// Blocks of up to this many bytes are never read in place, so that they take one round, in which nobody says where they are.
pub const SHORT_BYTES: usize = UNCHANGED_IN_PLACE_FROM_BYTES - 1;

/// How often in a row a block was found as it was when it was sent last, before it counts as unchanged: if a program writes it
/// after that, it pays an RFO for each line once. An estimate.
pub(crate) const UNCHANGED_TIMES: usize = 2;

/// How many blocks of a segment are known by what they were. An estimate.
pub(crate) const UNCHANGED_BLOCKS: usize = 8;

/// How many words of a block are compared: each is in a line of its own. An estimate: some tens of ns.
pub(crate) const UNCHANGED_SAMPLES: usize = 16;

// ---- Lengths that only their senders know (collective/first_part.rs)

/// The bytes of the transfer that brings the length of a broadcast, and the data that end in it. A second round costs as much as
/// moving some 4 KiB, and far more if ranks share processors; data that are shorter cost no more than themselves. An estimate.
pub(crate) const FIRST_PART_BYTES: usize = 4 << 10;

// ---- Stores and loads (copy/)

/// From this size on bytes are copied within private memory by vectors, on processors whose string instructions are slow: from about there on the C
/// library may use these. Measured: docs/adr/0070-copies-within-private-memory.md.
#[cfg(target_arch = "x86_64")]
pub(crate) const COPY_VECTORS_FROM_BYTES: usize = 2 << 10;

/// From this size on a put or a get moves vectors. Shorter ones are done before the first vector is. Measured.
#[cfg(target_arch = "x86_64")]
pub(crate) const PUT_VECTORS_FROM_BYTES: usize = 256;

/// From this size on a put or a get is one string instruction. Measured.
#[cfg(target_arch = "x86_64")]
pub(crate) const PUT_STRINGS_FROM_BYTES: usize = 8 << 10;

/// From this size on a put or a get is stored non-temporally: it is larger than the caches of a core. Measured.
pub(crate) const PUT_NON_TEMPORAL_FROM_BYTES: usize = 4 << 20;

/// From this size on a receive buffer is stored non-temporally: it is larger than the caches of a core. Measured.
pub(crate) const RECEIVE_NON_TEMPORAL_FROM_BYTES: usize = 16 << 20;

/// The bytes of a rank's own block that go to their place, and are then published: few enough to be in the L1 cache.
/// Measured: 64 MiB at 2 ranks take 0.80 of the time without (docs/adr/0022).
pub(crate) const OWN_PIECE_BYTES: usize = 16 << 10;

/// From this size on it can pay to publish by non-temporal stores, and is measured. Shorter copies end before the clock
/// has answered.
pub(crate) const PUBLISH_MEASURE_FROM_BYTES: usize = 2 << 10;

/// A line that costs more than this to publish is published by non-temporal stores. Between cores that share a cache an
/// RFO takes some 6 ns a line, between others 25; a non-temporal store, and reading from memory later, about 6. Measured.
pub(crate) const PUBLISH_NON_TEMPORAL_FROM_PS: u64 = 12_000;

/// A line that costs this or more, and not as much as that, is taken to be in the cache of a near reader, on processors
/// [without](crate::copy::cpu::has_strings) fast string instructions. Publishing such lines was measured to take 7.4 to 10.5 ns each between near processors of a
/// Zen 4, and 2.5 to 5.7 between distant ones. Not measured on others.
pub(crate) const PUBLISH_HELD_FROM_PS: u64 = 6_500;

/// Lines are taken to be in the caches of near readers when this many measurements in a row say so: one copy says little. An estimate.
pub(crate) const PUBLISH_HELD_MEASUREMENTS: usize = 3;

/// Of this many calls whose data need not be published, since it lies where all can read it, one publishes it for the sake of
/// measuring.
pub(crate) const PUBLISH_ONE_OF: usize = 16;

/// Up to this cost of publishing a line, data that others can read where it lies is not published: the program's own stores to
/// it cost more than those to staging, whose lines have left the readers' caches, or are in this core's own. Between processors that are near each other
/// publishing was measured to take 1.1 to 1.7 ns a line, between far ones 4 to 12.
pub(crate) const READ_IN_PLACE_UP_TO_PS: u64 = 3_000;

/// What a line is taken to have cost at most: a copy that was interrupted says little.
pub(crate) const PUBLISH_MAX_PS: u64 = 3 * PUBLISH_NON_TEMPORAL_FROM_PS;

/// About how many bytes are copied between two measurements: reading the clock takes some 25 ns.
pub(crate) const PUBLISH_MEASURE_EVERY_BYTES: usize = 64 << 10;

/// The most bytes of one measurement.
pub(crate) const PUBLISH_MEASURE_BYTES: usize = 64 << 10;

/// The bytes published by non-temporal stores before a cached store is measured again: ranks may have moved. At first few, then twice as
/// many each time: memory that is used for the first time is dear for another reason.
pub(crate) const PUBLISH_NON_TEMPORAL_LEAST_BYTES: usize = 256 << 10;

/// The most.
pub(crate) const PUBLISH_NON_TEMPORAL_BYTES: usize = 16 << 20;

/// Elements up to this size that divide a word, or are several, are given to an operation of the program's own as they are read, not copied
/// together before. Measured on a Zen 4: an allreduce_with of 1 MiB takes 0.64 to 0.73 of the time with elements of 1, 4, 8, 16, 24 and 32 bytes, and 0.87 with 64.
pub(crate) const OWN_BY_VALUE_BYTES: usize = 32;

/// How many bytes of a fold are made before they are published by non-temporal stores: few enough to be in the L1 cache.
pub(crate) const FOLD_BATCH_BYTES: usize = 2 << 10;

/// The same where the C library publishes them, whose string instructions take a while to begin.
pub(crate) const FOLD_STRING_BATCH_BYTES: usize = 8 << 10;

/// How far ahead lines of other cores are prefetched for read: what lies between arrives meanwhile. Measured on Intel, and on AMD (Zen 5):
/// docs/adr/0049-folds-prefetch.md.
pub(crate) const PREFETCH_READ_BYTES: usize = 2 << 10;

/// What another core has written is read from up to four places at a time, if they are so far apart: a page, with which the
/// hardware prefetcher ends. Measured on AMD between cores without a common cache, one place and four: 16 KiB 1.32 and
/// 0.81 µs, 64 KiB 4.7 and 3.4, 256 KiB 15.9 and 13.1 (docs/adr/0028). Within pages it takes longer.
pub(crate) const READ_STREAM_BYTES: usize = 4 << 10;

/// From how many bytes on what another core has written is read by the string instruction, where that [writes](crate::copy) whole lines
/// without having read them. Shorter copies take longer so. Measured: docs/adr/0046-reading-by-string-instructions.md.
#[cfg(target_arch = "x86_64")]
pub(crate) const READ_STRING_BYTES: usize = 16 << 10;

/// From this size on vectors of 256 bits are worth asking the processor for. Measured.
#[cfg(target_arch = "x86_64")]
pub(crate) const WIDE_FROM_BYTES: usize = 512;

// ---- Messages (message/, segment/message_memory.rs)

/// The bytes of buffers that a rank has for all senders together, if each has between the least number and 64. An estimate.
pub(crate) const MESSAGE_BYTES: usize = 4 << 20;

/// The longest buffer, in bytes. With 64 of these a channel between two ranks has twice the second-level cache of a core: what is
/// written there again has left the other core's cache by then, and the RFO takes a fifth of the time. Measured on AMD: copying
/// 64 KiB into 256 KiB of buffers, 1 MiB, 2 MiB and 4 MiB in turn took 7.1, 4.3, 1.7 and 1.6 µs, and out of them 1.5.
pub(crate) const MESSAGE_MOST_BUFFER_BYTES: usize = 32 << 10;

/// From how many bytes on a message takes the buffers behind the last, and not the lowest that are free: they have left the
/// caches. Short ones are copied faster into lines that are in a cache.
pub(crate) const MESSAGE_ROTATES_FROM_BYTES: usize = 8 << 10;

/// The same on Intel's processors. Measured: docs/adr/0054-short-messages-rotate-on-intel.md.
pub(crate) const MESSAGE_ROTATES_FROM_BYTES_ON_INTEL: usize = 2 << 10;

/// The buffers that each sender has at least.
pub(crate) const MESSAGE_LEAST_BUFFERS: usize = 4;

/// Up to this length a message is copied twice, and its sender need not wait for the receiver. An estimate: about where one
/// copy by the kernel pays.
pub(crate) const MESSAGE_EAGER_BYTES: usize = 64 << 10;

/// A long message that goes through the buffers without being asked for is copied in parts of this length at most: the receiver empties
/// some while the sender fills others. Measured: docs/adr/0047-long-messages-unasked.md.
pub(crate) const MESSAGE_PART_BYTES: usize = 32 << 10;

/// The same for one that is asked for, since it is longer than what comes unasked. Measured: docs/adr/0048-parts-of-the-longest-messages.md.
pub(crate) const MESSAGE_ASKED_PART_BYTES: usize = 128 << 10;

/// Parts of such messages take the lowest buffers for at least this many bytes, in which what that costs is measured. An estimate.
pub(crate) const MESSAGE_ASKED_MEASURE_BYTES: usize = 512 << 10;

/// In a channel with fewer bytes of buffers parts always take the lowest: all of them stay in the receiver's second-level cache. Measured with 1 and
/// 2 MiB (Zen 4).
pub(crate) const MESSAGE_ASKED_ROTATE_IN_BYTES: usize = 1 << 20;

/// Where the lowest buffers are dear, parts take those behind the last for this many bytes before the lowest are tried again; for twice as many each
/// time, up to the second. Estimates.
pub(crate) const MESSAGE_ASKED_ROTATE_LEAST_BYTES: usize = 8 << 20;
pub(crate) const MESSAGE_ASKED_ROTATE_MOST_BYTES: usize = 256 << 20;

/// The most buffers, of 64, that a reply may lie in which were those of the message that it answers. An estimate.
pub(crate) const MESSAGE_RETURNED_BUFFERS: usize = 4;

/// From how many bytes on a message that needs no receiver is published in parts. Measured, as the next: docs/adr/0032-message-buffers-in-turn.md.
pub(crate) const MESSAGE_PARTS_FROM_BYTES: usize = 3 << 10;

/// About how many parts a message has, if these are neither too short nor too long.
pub(crate) const MESSAGE_PARTS: usize = 4;

/// A shorter part takes longer than it saves, in bytes; of a message that is shorter than two of these each half is one.
pub(crate) const MESSAGE_SHORT_PART_BYTES: usize = 4 << 10;

/// The longest part, in bytes.
pub(crate) const MESSAGE_EARLY_PART_BYTES: usize = 16 << 10;

/// As many bytes of the buffers that the next message goes to are prefetched for write while a rank waits for an answer, on Intel's processors.
/// Measured: docs/adr/0061-the-next-message-s-buffer.md.
pub(crate) const MESSAGE_PREFETCH_BYTES: usize = 64 << 10;

/// A sender prefetches for write the cell that is this number of places behind the one that it has published. Measured, a stream of
/// messages of 8 bytes and nothing else: with 8 places 0.88 of the time without, with 16 to 48 places 0.8.
pub(crate) const MESSAGE_PREFETCH_CELLS: usize = 16;

/// The most cells that are taken from a sender before the next sender's turn.
pub(crate) const MESSAGE_BATCH: usize = 16;

/// A rank that waits for one sender looks at the others each time that it has polled this often. An estimate.
pub(crate) const MESSAGE_POLLS_OF_ONE: u32 = 32;

/// A receive from one sender polls its channel alone this often, before it waits in the usual way. Some 20 µs: longer than it takes
/// to copy a message that needs no receiver. An estimate.
pub(crate) const MESSAGE_DIRECT_POLLS: u32 = 2000;

/// A receiver that takes turns with a sender waits for at most this many steps before it polls first: on an EPYC some 0.4 µs, longer than an
/// answer takes between distant cores.
pub(crate) const FIRST_POLL_STEPS: u32 = 256;

/// After a poll that was too early it waits this many steps more.
pub(crate) const FIRST_POLL_STEPS_BACK: u32 = 6;

/// An answer that was there at once shortens the wait by a part of a step, or more if that is long.
pub(crate) const FIRST_POLL_STEP_PARTS: u32 = 16;

/// The most bytes of private memory that messages take in a communicator which nobody has asked for.
pub(crate) const MESSAGE_PRIVATE_BYTES: usize = 16 << 20;

/// The bytes of one `process_vm_readv` of a message: few enough for a withdrawal not to go unnoticed for long.
pub(crate) const MESSAGE_PIECE_BYTES: usize = 1 << 20;

/// A rank that gets a long message through buffers polls for the next part this often, before it looks at anything else. An estimate: what
/// 32 KiB take.
pub(crate) const MESSAGE_FRAGMENT_POLLS: u32 = 100;

/// A rank that gets a long message through buffers, and has looked this often since the last part, pulls the rest itself: its
/// sender may not run. An estimate: some ten times what 32 KiB take, and longer than a part of 128 KiB.
pub(crate) const MESSAGE_IDLE_POLLS: u32 = 500;

// ---- Endpoints (endpoint/)

/// The messages of a peer that are taken in before one of them is received. The rest stays in its channel.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_UNRECEIVED: usize = 128;

/// The same where a message is asked for that may be behind them.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_UNRECEIVED_MOST: usize = 4096;

/// The most bytes of private memory that a peer's messages take which nobody has received, as long as it is not gone.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_PRIVATE_BYTES: usize = 1 << 20;

/// How many calls poll the channels of the peers that are awake before one looks at the clock, whether to ask the system for the others.
/// An estimate.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_CALLS_OF_CHANNELS: u32 = 64;

/// After this time such a call asks. Measured on AMD: to ask costs 0.6 µs between near cores, and 3 between distant ones, with what has
/// to be gone on with behind it.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_TIME_OF_CHANNELS: Duration = Duration::from_micros(50);

/// How often a call that waits for its answer in the line of a pair polls that line alone, before it waits in the usual way. Some
/// 1 µs: longer than an answer takes of a side that has nothing else to do. An estimate.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_DIRECT_POLLS: u32 = 32;

/// The polls of a call that waits, each of which counts as one call for that: together they take about as long as the system does
/// to answer ten times, some 0.5 µs.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_POLLS_PER_CALL: u32 = 8;

/// An endpoint that polls for so long before it sleeps is awake when its peer answers: a transfer that waits is sent in messages. An
/// estimate.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_SPIN_FOR_ANSWERS: Duration = Duration::from_micros(50);

/// Of a put of up to this number of bytes the second half is sent while the peer reads the first, or as much of it as the next says. Measured: docs/adr/0043-both-sides-copy-a-put.md.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_BOTH_WAYS_BYTES: usize = 256 << 10;
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_WRITTEN_BYTES: usize = 96 << 10;

/// A transfer by messages has up to this number on their way, each in a buffer: as long as one is copied others are filled. Measured:
/// docs/adr/0045-large-transfers-by-both-sides.md.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_BULK_IN_FLIGHT: usize = 4;

/// A get whose owner has not begun to send for so long is read without it. A few times as long as an owner takes that polls. An estimate.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_OWNER_SENDS_WITHIN: Duration = Duration::from_micros(20);

/// And for each KiB of what it was asked for. What was read from it lies in the caches of who has read it: between near processors of a Zen 4 a part of 32 KiB then took it 23 to
/// 31 µs, where it takes 2 otherwise. An estimate.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_OWNER_SENDS_KIB_WITHIN: Duration = Duration::from_micros(1);

/// How often in one get. After that all is read.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_LATE: u32 = 3;

/// The bytes that are read then before it is looked again whether the owner sends.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_READ_BETWEEN_BYTES: usize = 256 << 10;

/// A transfer of up to this number of bytes goes by messages: to copy them twice takes less time than the system needs before it copies.
/// Measured on an AMD EPYC against 8 and 64 KiB: a get of 16 KiB is 1.4 to 1.8 times as fast as a copy by the system (before 0.4 to
/// 1.0), one of 64 KiB half as fast.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_SHORT_BYTES: usize = 16 << 10;

/// The registered memories of a peer that are read without asking where they lie. Fewer than leases that a peer can give.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_MAPPED: usize = 16;

/// The connections that are accepted, and the packets that are read of one, before others are looked at.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_BATCH: usize = 16;

/// How long a connection may be without a hello.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_HELLO: Duration = Duration::from_secs(5);

/// How long an endpoint that has no descriptor left to accept or refuse a connection looks for none. As long as a call of the program's may
/// well take that gives one back, and few wake-ups a second.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_PAUSE: Duration = Duration::from_millis(100);

/// The most bytes that connections may take which have ended, and of which messages are not received: these are private memory then. An
/// estimate: of peers that have sent one short message each many more than an endpoint with the usual limit of descriptors has at a
/// time, and of those that have filled all buffers with messages some 250.
#[cfg(target_os = "linux")]
pub(crate) const ENDPOINT_GONE_BYTES: usize = 64 << 20;

// ---- Waiting (sys/wait/, segment/platform.rs)

/// Polls before the clock is read for the first time: it takes as long as some 20 polls.
pub(crate) const POLLS_BEFORE_CLOCK: u32 = 200;

/// Polls between two readings of the clock.
pub(crate) const POLLS_PER_CLOCK: u32 = 50;

/// How long a rank spins before it sleeps, if every rank has a processor: the imbalance of evenly shared work. Measured.
pub(crate) const SPIN: Duration = Duration::from_millis(4);

/// How long of that it spins without sched_yield: about a sleep and a wake-up. Measured.
pub(crate) const SPIN_WITHOUT_YIELD: Duration = Duration::from_micros(50);

/// In an oversubscribed job, the polls before the first sched_yield if the awaited rank is on another processor: about the
/// time of a switch. Measured.
pub(crate) const POLLS_BEFORE_YIELD: u32 = 100;

/// The same on Intel's processors. Measured: docs/adr/0075-ranks-in-a-row-share-a-processor.md.
pub(crate) const POLLS_BEFORE_YIELD_ON_INTEL: u32 = 25;

/// In an oversubscribed job, the polls of a rank that waits for one write after each sched_yield: less than a switch takes.
/// Measured.
pub(crate) const POLLS_AFTER_YIELD: u32 = 20;

/// The calls to sched_yield of such a rank before it sleeps: some 100 µs, about what it costs to be woken twice. If the other
/// ranks of its processor wait too, the one that they wait for runs on another. Measured with 4 ranks on 2 processors, against 5
/// calls with 100 polls each: a message of 1 MiB takes 0.74 of the time, of 16 MiB 0.62, a put of 1 MiB with a signal 0.65;
/// up to 64 KiB it is the same.
pub(crate) const YIELDS_FOR_WRITE: u32 = 100;

/// In an oversubscribed job, the most receives in a row that yield at once after polls for an answer in vain. Measured with 4 and 8 ranks
/// on 2 processors, against 3 and 31, and against polls each time: docs/adr/0064-polls-before-an-answer.md.
pub(crate) const WAITS_WITHOUT_POLLS: u32 = 7;

/// The calls to sched_yield of such a receive before it looks at the other senders and waits in the usual way. Measured likewise: without
/// polls before it, a ping-pong of 8 B takes 0.77 of the time that it takes without yields, of 64 KiB 0.92; one and four are alike.
pub(crate) const YIELDS_OF_ONE: u32 = 2;

/// In an oversubscribed job, the calls to sched_yield before a rank sleeps. Measured.
pub(crate) const YIELDS: u32 = 16;

/// The longest brief wait: more than a wake-up takes, and little for a rank that waits long.
pub(crate) const BRIEF_WAIT: Duration = Duration::from_millis(10);

/// The longest sleep of a rank that waits for its symmetric memory: then it looks whether somebody has written without ringing
/// its bell.
pub(crate) const NAP: Duration = Duration::from_millis(10);

/// The longest sleep of a rank that has started a call and waits for something else: then it goes on with the call. As long as it spins it
/// does so all the time. Ranks that are threads sleep on words without a time-out, and so until the next `THREADS_TICK`.
pub(crate) const PROGRESS_NAP: Duration = Duration::from_millis(1);

/// For how long such a rank looks for the next round of the call, when one has come, before it sleeps. An estimate of what a rank
/// that waits for that round needs to wake up and to answer.
pub(crate) const PROGRESS_PATIENCE: Duration = Duration::from_micros(100);

/// With pthread waits, the longest sleep before the word is read again: a wake-up may be lost to a rank that is killed
/// while it holds the mutex.
pub(crate) const PTHREAD_MAX_SLEEP: Duration = Duration::from_millis(10);

/// The pause of a pthread wait that could not lock the mutex.
pub(crate) const PTHREAD_LOCK_PAUSE: Duration = Duration::from_millis(1);

/// Calls to sched_yield before a wake-up gives up a mutex for a while: it is held briefly, unless its holder was stopped or
/// killed.
pub(crate) const PTHREAD_LOCK_YIELDS: u32 = 100;

/// The pause between two attempts at that mutex.
pub(crate) const PTHREAD_LOCK_RETRY: Duration = Duration::from_micros(50);

/// The largest delay with which ranks that are threads notice a deadline.
pub(crate) const THREADS_TICK: Duration = Duration::from_millis(10);

// ---- Recording (segment/recorder.rs)

/// The number of calls of an operation that are all timed at first.
pub(crate) const RECORD_FIRST: u64 = 32;

/// Of this many cheap calls one is timed afterwards: reading the clock twice takes as long as half a barrier. Measured, by
/// `cargo bench --bench report`.
pub(crate) const RECORD_ONE_OF: u64 = 256;

/// The same where ranks share processors: a call takes as long as some switches, and its time varies more.
pub(crate) const RECORD_ONE_OF_OVERSUBSCRIBED: u64 = 8;

/// An operation that brings data, and whose calls take this long without long waits, is timed at each call: the clock takes
/// less than 1 % of it.
pub(crate) const RECORD_ALL_FROM_NS: u64 = 10_000;

/// The same for one that moves this number of bytes.
pub(crate) const RECORD_ALL_FROM_BYTES: u64 = 4 << 10;

// ---- The shared heap (sys/shared_heap/)

/// Allocations from this length on are in memory that others can read: half of what the C library takes for its own mappings at first.
/// No shorter block is read in place by all, but parts of longer ones are.
pub(crate) const HEAP_FROM_BYTES: usize = 64 << 10;

/// What keeps its pages when it is freed. The C library keeps as much at the end of its heap, once it has seen blocks of 32 MiB freed.
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
pub(crate) const HEAP_KEPT_BYTES: usize = 64 << 20;

/// How much is mapped at once, at least: few mappings, and few calls of the system.
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
pub(crate) const HEAP_GROWS_BY_BYTES: usize = 64 << 20;

/// The length of the range of addresses: this many times the machine's memory, and at most these bytes, which is what a place has bits for.
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
pub(crate) const HEAP_WINDOW_MEMORIES: usize = 2;
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
pub(crate) const HEAP_WINDOW_BYTES: usize = 1 << 40;

// ---- Joining (sys/shm_file/open.rs)

/// The first pause between two attempts at opening the segment. Each is twice the one before.
pub(crate) const OPEN_FIRST_PAUSE: Duration = Duration::from_micros(50);

/// The longest of these pauses.
pub(crate) const OPEN_LONGEST_PAUSE: Duration = Duration::from_millis(5);

// ---- Watchers (liveness/watcher.rs)

/// How often the words of a rank are polled where the kernel has no `futex_waitv`.
#[cfg(target_os = "linux")]
pub(crate) const WATCH_SCAN: Duration = Duration::from_millis(2);

/// How often the pidfd of a rank's process is polled, by some watcher of the job. 128 ranks that sleep use less than 1 % of
/// a processor so. Measured.
#[cfg(target_os = "linux")]
pub(crate) const WATCH_TICK: Duration = Duration::from_millis(150);

/// The longest time between two calls of a listener that needs ticks.
#[cfg(target_os = "linux")]
pub(crate) const LISTENER_TICK: Duration = Duration::from_millis(100);

// ---- Several nodes (nodes/)

/// What a leader shows the others of a call: two cache lines, in which the contributions of some ranks come along.
pub const NODE_PACKET_BYTES: usize = 128;

/// From how many bytes of all ranks' contributions on a reduction goes from node to node, instead of to every rank. An
/// estimate: at 100 Gbit/s that many take as long as two messages. To be measured on a network.
pub const CHAIN_FROM_BYTES: usize = 64 << 10;

/// The bytes that go from node to node at once. The estimate: long enough for the latency of a network not to count.
pub const CHAIN_CHUNK_BYTES: usize = 256 << 10;

/// The bytes of a broadcast that go over the network at once, while a leader holds a copy of them. An estimate.
pub const SPREAD_PIECE_BYTES: usize = 4 << 20;
