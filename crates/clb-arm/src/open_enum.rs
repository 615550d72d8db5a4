//! Enumerations that Azure may add to.

/// An enumeration with the given spellings. They are read in any casing, and what is not among them is kept as
/// `Other`, so that one new value does not make a whole list unreadable, and is written back unchanged. The crate that uses it
/// needs `serde`.
#[macro_export]
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A value that this crate does not know.
            Other(String),
        }

        impl $name {
            /// The value as Azure spells it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $(if text.eq_ignore_ascii_case($text) {
                    return Self::$variant;
                })+
                Self::Other(text.to_owned())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                std::borrow::Cow::<str>::deserialize(deserializer).map(|text| Self::from(&*text))
            }
        }
    };
}
