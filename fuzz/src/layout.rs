//! The segment's layout: for any number of ranks, any chunk and any address space there is either an error or a layout whose
//! parts do not overlap, are aligned, and are inside the segment.

use intranode::segment::layout::{Layout, LayoutError};

use super::input::Input;
use super::model::{Map, address_space};

/// The input: ranks, chunk, the largest mapping, and two numbers that select a buffer. Returns whether there is a layout.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (ranks, chunk) = (input.size(), input.size());
    let most = input.number();
    let (rank, parity) = (input.size(), input.size());
    for most in [most, address_space(64) as u64, address_space(32) as u64] {
        check(ranks, chunk, most, (rank, parity));
    }
    check_default(ranks);
    let layout = Layout::new(ranks, chunk);
    assert_eq!(layout, Layout::within(ranks, chunk, isize::MAX as u64));
    layout.is_ok()
}

/// With the default chunk, every number of ranks has a layout, and it fits into 32 bits.
pub fn check_default(ranks: usize) {
    let chunk = Layout::default_chunk(ranks);
    let layout = Layout::within(ranks, chunk, address_space(32) as u64);
    assert_eq!(layout.is_ok(), (1..=65_536).contains(&ranks), "{ranks} ranks: {layout:?}");
}

/// Compares with the model, for a process whose mappings have at most `most` bytes.
pub fn check(ranks: usize, chunk: usize, most: u64, asked: (usize, usize)) {
    let Some((layout, map)) = check_length(ranks, chunk, most) else { return };
    check_parts(&layout, &map);
    let (rank, parity) = asked;
    let inside = rank < ranks && parity < 2;
    let expected = inside.then(|| map.staging(rank as u128, parity as u128).start);
    assert_eq!(layout.staging(rank, parity).map(|offset| offset as u128), expected);
    let alive = rank < ranks && (parity as u128) < map.watchers;
    let expected = alive.then(|| map.alive + 8 * (rank as u128 * map.watchers + parity as u128));
    assert_eq!(layout.alive(rank, parity).map(|offset| offset as u128), expected);
    // Any word has a pair.
    assert!(layout.pair(layout.pair_of(rank)).is_some());
    assert_eq!(layout.pair(rank).is_some(), rank < 16);
}

/// Compares whether there is a layout, and its length. Returns the layout, if there is one.
pub fn check_length(ranks: usize, chunk: usize, most: u64) -> Option<(Layout, Map)> {
    // No limit allows more than this process could map.
    let most = u128::from(most).min(address_space(usize::BITS));
    let layout = Layout::within(ranks, chunk, most as u64);
    let Some(map) = Map::new(ranks as u128, chunk as u128) else {
        let refused = matches!(layout, Err(LayoutError::Ranks(_) | LayoutError::Chunk(_)));
        assert!(refused, "{ranks} ranks, chunk {chunk}: {layout:?}");
        return None;
    };
    if map.len > most {
        assert_eq!(layout, Err(LayoutError::Overflow), "{map:?} in {most}");
        return None;
    }
    let layout = layout.unwrap_or_else(|error| panic!("{map:?} in {most}: {error}"));
    assert_eq!((layout.ranks(), layout.chunk()), (ranks, chunk));
    assert_eq!(layout.len() as u128, map.len);
    Some((layout, map))
}

/// Each part follows the one before; it has the size and the alignment of its contents.
fn check_parts(layout: &Layout, map: &Map) {
    let ranks = layout.ranks();
    let mut end = 0;
    let mut part = |start: usize, len: usize, align: usize| {
        assert!(start as u128 >= end, "{layout:?}: {start} begins before {end}");
        assert_eq!(start % align, 0, "{layout:?}: {start}");
        end = start as u128 + len as u128;
        assert!(end <= map.len, "{layout:?}: {start} + {len}");
    };
    part(0, 64, 8);
    part(layout.cause(), 8, 8);
    part(layout.wait(), 4, 4);
    part(layout.notices(), 4, 4);
    part(layout.swap(), 4, 4);
    part(layout.claims(), 4 * ranks, 4);
    part(layout.pid_namespaces(), 4 * ranks, 4);
    part(layout.fates(), 4 * ranks, 4);
    assert_eq!((layout.pid_namespaces() as u128, layout.fates() as u128), (map.spaces, map.fates));
    assert_eq!(layout.watchers() as u128, map.watchers);
    for owner in (0..ranks.min(32)).chain(ranks.saturating_sub(32).max(ranks.min(32))..ranks) {
        let row = map.alive + owner as u128 * map.watchers * 8;
        for slot in 0..layout.watchers() {
            let word = layout.alive(owner, slot).expect("an owner's words");
            assert_eq!(word as u128, row + 8 * slot as u128);
            part(word, 8, 8);
        }
    }
    part(layout.slots(), 2 * 128 * ranks, 128);
    part(layout.bells(), 128 * ranks, 128);
    (0..16).for_each(|pair| part(layout.pair(pair).expect("16 pairs"), 128, 128));
    assert_eq!((layout.slots() as u128, layout.bells() as u128), (map.slots, map.bells));
    assert_eq!(layout.pair(0).map(|offset| offset as u128), Some(map.pairs));
    // All ranks if they are few, otherwise the first and the last: `asked` tests the formula for those between.
    let (first, last) = (ranks.min(32), ranks.saturating_sub(32).max(ranks.min(32)));
    for rank in (0..first).chain(last..ranks) {
        for parity in 0..2 {
            let start = layout.staging(rank, parity).expect("a rank's buffer");
            part(start, layout.chunk(), 64);
            assert_eq!(start as u128, map.staging(rank as u128, parity as u128).start);
        }
    }
    assert_eq!(end, map.len, "nothing follows the last buffer");
    assert_eq!(layout.staging(0, 0).map(|offset| offset % 4096), Some(2048));
    assert_eq!((layout.staging(ranks, 0), layout.staging(0, 2)), (None, None));
}
