//! Enums whose variants are words of YAML files, requests, logs and metrics.

/// Interface of these enums, for generic code.
pub trait Word: Copy + 'static {
    /// Every one, in the order in which documents list them.
    fn all() -> &'static [Self];

    /// Name of the value outside the program.
    fn word(self) -> &'static str;
}

/// Defines an enum with its words: `ALL` in the order of the variants, `as_str`, and `of`.
#[doc(hidden)]
#[macro_export]
macro_rules! enum_of_words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            /// Every one, in the order in which documents list them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name of the value outside the program.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// The value with this name.
            #[must_use]
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl $crate::words::Word for $name {
            fn all() -> &'static [Self] {
                Self::ALL
            }

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
#[doc(inline)]
pub use enum_of_words as words;
