//! The part of `libz-ng-sys` that `flate2` calls, served by zlib-rs.
//!
//! `pingora-core` selects `flate2/zlib-ng`, whose build script runs CMake. Tollgate must build with
//! Rust and a C compiler alone, so the workspace replaces that crate with this one.
//! Source: docs/adr/0030-crates-and-build.md.
#![expect(non_camel_case_types, non_snake_case, reason = "the names of zlib's C interface")]
#![expect(clippy::missing_safety_doc, reason = "zlib's manual states the conditions of each call")]

use core::ffi::{c_char, c_int, c_void};
use core::mem::{offset_of, size_of};

pub use libz_rs_sys::*;

/// Memory that zlib asks of its caller: `(opaque, items, bytes_per_item)`.
pub type alloc_func = unsafe extern "C" fn(*mut c_void, uInt, uInt) -> *mut c_void;
/// Memory that zlib gives back to its caller: `(opaque, address)`.
pub type free_func = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// `z_stream` as `libz-ng-sys` declares it: zlib-rs differs only in `Option`s around the two
/// functions and in `const` pointers, neither of which changes the layout.
#[repr(C)]
#[expect(missing_docs, reason = "the fields of zlib's C interface")]
pub struct z_stream {
    pub next_in: *mut u8,
    pub avail_in: uInt,
    pub total_in: uLong,
    pub next_out: *mut u8,
    pub avail_out: uInt,
    pub total_out: uLong,
    pub msg: *mut c_char,
    pub state: *mut internal_state,
    pub zalloc: alloc_func,
    pub zfree: free_func,
    pub opaque: *mut c_void,
    pub data_type: c_int,
    pub adler: uLong,
    pub reserved: uLong,
}

/// A pointer to the caller's stream.
pub type z_streamp = *mut z_stream;

// zlib checks `size_of::<z_stream>()` at run time; these fail at compile time instead.
const _: () = assert!(size_of::<z_stream>() == size_of::<libz_rs_sys::z_stream>());
const _: () = assert!(offset_of!(z_stream, msg) == offset_of!(libz_rs_sys::z_stream, msg));
const _: () = assert!(offset_of!(z_stream, zalloc) == offset_of!(libz_rs_sys::z_stream, zalloc));
const _: () = assert!(offset_of!(z_stream, adler) == offset_of!(libz_rs_sys::z_stream, adler));

macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// The function of this name in zlib's manual.
        pub unsafe extern "C" fn $name(stream: z_streamp, $($argument: $kind),*) -> c_int {
            // SAFETY: both streams have one layout (asserted above), and zlib-rs asks of its
            // caller what zlib does.
            unsafe { libz_rs_sys::$name(stream.cast(), $($argument),*) }
        }
    )*};
}

forward! {
    deflate(flush: c_int);
    deflateEnd();
    deflateInit2_(
        level: c_int, method: c_int, window_bits: c_int, memory_level: c_int, strategy: c_int,
        version: *const c_char, stream_size: c_int
    );
    deflateParams(level: c_int, strategy: c_int);
    deflateReset();
    deflateSetDictionary(dictionary: *const u8, length: uInt);
    inflate(flush: c_int);
    inflateEnd();
    inflateInit2_(window_bits: c_int, version: *const c_char, stream_size: c_int);
    inflateReset2(window_bits: c_int);
    inflateSetDictionary(dictionary: *const u8, length: uInt);
}
