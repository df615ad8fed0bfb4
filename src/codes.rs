//! Enums whose variants have numbers, for memory that other processes read.
//!
//! A number that comes out of such memory may be anything, so it is looked up among the variants. The list of them is made
//! from the declaration: a variant that is added is in it.

/// An enum that [`codes!`] has declared.
pub(crate) trait Codes: Copy + 'static {
    /// What its numbers are.
    type Code: PartialEq;

    /// Every variant, in the order of the declaration.
    const ALL: &'static [Self];

    /// The number of this variant.
    fn code(self) -> Self::Code;

    /// The variant with this number, if there is one.
    fn from_code(code: Self::Code) -> Option<Self> {
        Self::ALL.iter().copied().find(|variant| variant.code() == code)
    }
}

/// Declares an enum, with the type of its numbers, and implements [`Codes`] for it. Numbers that another process reads are
/// written out; without one a variant has the number that follows, from 0 on.
macro_rules! codes {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident: $code:ident {
            $($(#[$variant_attribute:meta])* $variant:ident $(= $value:literal)?),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[repr($code)]
        $visibility enum $name {
            $($(#[$variant_attribute])* $variant $(= $value)?),+
        }

        impl $crate::codes::Codes for $name {
            type Code = $code;

            const ALL: &'static [Self] = &[$($name::$variant),+];

            #[inline]
            fn code(self) -> $code {
                self as $code
            }
        }
    };
}
pub(crate) use codes;

#[cfg(test)]
mod tests {
    use super::*;

    codes! {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Written: u16 {
            One = 1,
            Many = 500,
        }
    }

    codes! {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Counted: u8 {
            Zero,
            One,
        }
    }

    #[test]
    fn every_variant_is_known_by_its_number() {
        assert_eq!(Written::ALL, [Written::One, Written::Many]);
        assert_eq!((Written::One.code(), Written::Many.code()), (1, 500));
        assert_eq!(Counted::ALL.iter().map(|one| one.code()).collect::<Vec<_>>(), [0, 1]);
        for variant in Written::ALL {
            assert_eq!(Written::from_code(variant.code()), Some(*variant));
        }
        assert_eq!((Counted::from_code(0), Counted::from_code(1)), (Some(Counted::Zero), Some(Counted::One)));
    }

    #[test]
    fn other_numbers_are_no_variant() {
        for number in [0, 2, 499, u16::MAX] {
            assert_eq!(Written::from_code(number), None);
        }
        assert_eq!(Counted::from_code(2), None);
    }
}
