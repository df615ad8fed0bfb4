//! From the type of a buffer's elements to a type of Rust.

/// Runs the body with `$T` as the type of the elements. Opaque ones are bytes.
macro_rules! of_kind {
    ($kind:expr, $T:ident, $body:expr) => {
        $crate::typed::of_kind!(@ $kind, $T, $body, I1 i8, I2 i16, I4 i32, I8 i64, U1 u8, U2 u16, U4 u32, U8 u64, F4 f32, F8 f64,
            C8 num_complex::Complex<f32>, C16 num_complex::Complex<f64>, Bool u8, Opaque u8)
    };
    (@ $kind:expr, $T:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $kind {
            $($crate::buffer::Kind::$variant => {
                type $T = $type;
                $body
            })*
        }
    };
}

/// The same, with the bytes as slices of it.
macro_rules! moved {
    ($kind:expr, $T:ident, $send:ident, $recv:ident, $body:expr) => {
        $crate::typed::of_kind!($kind, $T, {
            let ($send, $recv): (&[$T], &mut [$T]) =
                (bytemuck::cast_slice($send), bytemuck::cast_slice_mut($recv));
            $body
        })
    };
}

/// Runs the body with `$T` as the type of numbers, and returns what it does; `None` for what is no number.
macro_rules! of_number {
    ($kind:expr, $T:ident, $body:expr) => {
        $crate::typed::of_number!(@ $kind, $T, $body, I1 i8, I2 i16, I4 i32, I8 i64, U1 u8, U2 u16, U4 u32, U8 u64, F4 f32, F8 f64)
    };
    (@ $kind:expr, $T:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $kind {
            $($crate::buffer::Kind::$variant => {
                type $T = $type;
                Some($body)
            })*
            _ => None,
        }
    };
}

pub(crate) use {moved, of_kind, of_number};
