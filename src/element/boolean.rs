//! Logical reductions of `bool`.

use std::borrow::Cow;

use super::{ReduceOp, Reducible, sealed};

impl Reducible for bool {}
impl sealed::Sealed for bool {
    type Repr = u8;

    fn has(op: ReduceOp) -> bool {
        op.is_logical()
    }

    fn fold(op: ReduceOp, fold: impl sealed::Folder<u8>) {
        <u8 as sealed::Sealed>::fold(op, fold);
    }

    fn encode(values: &[bool]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(values))
    }

    // Bytes of shared memory never become a `bool` as they are: another process may have written any.
    fn update<R>(values: &mut [bool], call: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = Self::encode(values).into_owned();
        let result = call(&mut bytes);
        values.iter_mut().zip(bytes).for_each(|(value, byte)| *value = byte != 0);
        result
    }
}
