//! Reading what is not quite as described.

use serde::{Deserialize, Deserializer};

/// A value whose `null` means the same as its absence.
pub(super) fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A list in which `null` entries say nothing, and which is empty when it is `null` itself.
pub(super) fn sparse<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(optional_sparse(deserializer)?.unwrap_or_default())
}

/// As [`sparse`], where the absence of the whole list means something.
pub(super) fn optional_sparse<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.map(|items| items.into_iter().flatten().collect()))
}

/// Whether there is nothing to write.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An enumeration with the given spellings. They are read in any casing, and what is not among them is kept as
/// `Other`, so that one new value does not make a whole list unreadable, and is written back unchanged.
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

pub(super) use open_enum;
