//! Put, get, atomics and fences.
//!
//! | promise | given by |
//! | --- | --- |
//! | what was stored before a `store` is seen by the rank that loads it | Release, Acquire |
//! | loads and gets happen in program order | Acquire; an Acquire fence behind each get |
//! | what was put before a `fence` is seen before what is put behind it | a Release fence |
//! | what was put before a `quiet` is seen by all ranks | a SeqCst fence |
//! | a signal is seen after the data | a Release fence in between |
//!
//! Each write into a rank's memory rings that rank's [bell](super::bell).

use super::super::{Killed, Ordering};
use super::{AtomicCell, Cell, Fetch, IntegerCell, OneSided, SymmetricPlatform};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// What happens to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalling {
    /// It is overwritten.
    Set,
    /// The number is added.
    Add,
}

impl<P: SymmetricPlatform> OneSided<'_, P> {
    /// Writes a cell of `target`'s.
    ///
    /// # Errors
    /// Only when a test stops this rank; so do all others here.
    #[inline]
    pub fn store<C: Cell>(&self, target: usize, cell: &C, value: C::Value) -> Result<(), Killed> {
        self.platform.store_cell("store", cell, value, Release);
        self.ring(target)
    }

    /// Reads a cell.
    #[inline]
    pub fn load<C: Cell>(&self, cell: &C) -> C::Value {
        self.platform.load_cell("load", cell, Acquire)
    }

    /// Writes a cell of `target`'s, and returns what was there before.
    #[inline]
    pub fn swap<C: AtomicCell>(&self, target: usize, cell: &C, value: C::Value) -> Result<C::Value, Killed> {
        let before = self.platform.swap_cell("swap", cell, value, AcqRel);
        self.ring(target)?;
        Ok(before)
    }

    /// Replaces `current` by `new`, or returns what was there instead.
    #[inline]
    pub fn compare_swap<C: AtomicCell>(
        &self,
        target: usize,
        cell: &C,
        current: C::Value,
        new: C::Value,
    ) -> Result<Result<C::Value, C::Value>, Killed> {
        let result = self.platform.exchange_cell("compare-swap", cell, current, new, AcqRel, Acquire);
        if result.is_ok() {
            self.ring(target)?;
        }
        Ok(result)
    }

    /// Applies an operation to a cell of `target`'s, and returns what was there before.
    #[inline]
    pub fn fetch<C: IntegerCell>(
        &self,
        target: usize,
        cell: &C,
        operation: Fetch,
        value: C::Value,
    ) -> Result<C::Value, Killed> {
        let before = self.platform.fetch_cell("fetch", cell, operation, value, AcqRel);
        self.ring(target)?;
        Ok(before)
    }

    /// Writes cells of `target`'s, in any order.
    #[inline]
    pub fn put<C: Cell>(&self, target: usize, cells: &[C], values: &[C::Value]) -> Result<(), Killed> {
        self.platform.put_cells("put", cells, values, Relaxed);
        self.ring(target)
    }

    /// Writes one cell of a put whose cells are apart. [`put_done`](Self::put_done) follows the last.
    #[inline]
    pub fn put_cell<C: Cell>(&self, cell: &C, value: C::Value) {
        self.platform.store_cell("put-strided", cell, value, Relaxed);
    }

    /// Ends a put of single cells.
    #[inline]
    pub fn put_done(&self, target: usize) -> Result<(), Killed> {
        self.ring(target)
    }

    /// Reads cells, in any order.
    #[inline]
    pub fn get<C: Cell>(&self, cells: &[C], values: &mut [C::Value]) {
        self.platform.get_cells("get", cells, values, Relaxed);
        self.get_done();
    }

    /// Reads one cell of a get whose cells are apart. [`get_done`](Self::get_done) follows the last.
    #[inline]
    pub fn get_cell<C: Cell>(&self, cell: &C) -> C::Value {
        self.platform.load_cell("get-strided", cell, Relaxed)
    }

    /// Ends a get of single cells: what follows happens after it.
    #[inline]
    pub fn get_done(&self) {
        self.platform.fence("get-fence", Acquire);
    }

    /// Writes cells of `target`'s, and then a signal, which a rank that waits for it sees after them.
    #[inline]
    pub fn put_signal<C: Cell, S: IntegerCell>(
        &self,
        target: usize,
        (cells, values): (&[C], &[C::Value]),
        signal: &S,
        signalling: Signalling,
        value: S::Value,
    ) -> Result<(), Killed> {
        self.platform.put_cells("put-signalled", cells, values, Relaxed);
        self.platform.fail_point("put-unsignalled")?;
        // Relaxed together with the fence: the fence orders all of the cells, whatever wrote them.
        self.platform.fence("signal-fence", Release);
        match signalling {
            Signalling::Set => drop(self.platform.swap_cell("signal-set", signal, value, Relaxed)),
            Signalling::Add => drop(self.platform.fetch_cell("signal-add", signal, Fetch::Add, value, Relaxed)),
        }
        self.ring(target)
    }

    /// What was put before is seen before what is put from now on, on every rank.
    #[inline]
    pub fn fence(&self) {
        self.platform.fence("fence", Release);
    }

    /// What was put before is complete, and every rank sees it.
    #[inline]
    pub fn quiet(&self) {
        self.platform.fence("quiet", SeqCst);
    }
}
