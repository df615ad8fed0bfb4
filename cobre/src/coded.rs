//! Types with invalid bit patterns: they are sent as numbers, which the receiver checks.

use intranode::Number;

use crate::error;
use cobre_comm::CommError;

/// A type that is sent as a number.
pub(crate) trait Coded: Copy + 'static {
    /// The number.
    type Code: Number;
    /// The type's name, for messages.
    const NAME: &'static str;

    /// The number of this value.
    fn code(self) -> Self::Code;
    /// The value of this number, if there is one.
    fn value(code: Self::Code) -> Option<Self>;
}

impl Coded for bool {
    type Code = u8;
    const NAME: &'static str = "bool";

    fn code(self) -> u8 {
        u8::from(self)
    }

    fn value(code: u8) -> Option<Self> {
        match code {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Coded for char {
    type Code = u32;
    const NAME: &'static str = "char";

    fn code(self) -> u32 {
        u32::from(self)
    }

    fn value(code: u32) -> Option<Self> {
        char::from_u32(code)
    }
}

/// The numbers of `values`.
pub(crate) fn encode<C: Coded>(values: &[C]) -> Vec<C::Code> {
    values.iter().map(|value| value.code()).collect()
}

/// Writes the values of `codes` to `values`, or none of them if one is invalid.
pub(crate) fn decode<C: Coded>(
    operation: &'static str,
    codes: &[C::Code],
    values: &mut [C],
) -> Result<(), CommError> {
    let decoded: Option<Vec<C>> = codes.iter().map(|code| C::value(*code)).collect();
    let decoded = decoded
        .ok_or_else(|| error::failed(operation, format!("what arrived is not a {} everywhere", C::NAME)))?;
    values.copy_from_slice(&decoded);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let chars = ['\0', 'ß', '\u{d7ff}', '\u{e000}', char::MAX];
        let mut back = ['x'; 5];
        decode("allgatherv", &encode(&chars), &mut back).expect("they are chars");
        assert_eq!(back, chars);
    }

    #[test]
    fn an_invalid_pattern_is_refused_and_nothing_written() {
        let mut flags = [true; 2];
        assert!(decode("allgatherv", &[0, 2], &mut flags).is_err());
        assert_eq!(flags, [true; 2]);
        let mut chars = ['a'];
        assert!(decode("broadcast", &[0xd800], &mut chars).is_err());
        assert_eq!(chars, ['a']);
    }
}
