//! Names of Azure resources and of the instances of a scale set.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// One name in an Azure resource id: a subscription, a resource group, a scale set, a virtual machine.
///
/// Azure compares names without regard to case, so two spellings are equal, hash alike and sort alike; the
/// spelling that was read is the one that is shown. Only ASCII letters are folded.
#[derive(Clone)]
pub struct ArmName(String);

impl ArmName {
    /// The name as it was spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn folded(&self) -> impl Iterator<Item = u8> {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }
}

impl FromStr for ArmName {
    type Err = NameError;

    /// # Errors
    /// [`NameError`] for a text that could not stand between two slashes of a URL as it is.
    fn from_str(name: &str) -> Result<Self, NameError> {
        match name {
            "" => return Err(NameError::Empty),
            // A URL parser would resolve these, and the request would go to another resource.
            "." | ".." => return Err(NameError::Dots),
            _ => {}
        }
        // The most permissive rule of the four kinds is that of resource groups, which take letters of any script.
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
        match name.chars().find(|&c| !allowed(c)) {
            Some(character) => Err(NameError::BadCharacter { character }),
            None => Ok(Self(name.to_owned())),
        }
    }
}

impl fmt::Display for ArmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ArmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq for ArmName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ArmName {}

impl Hash for ArmName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.folded() {
            state.write_u8(byte);
        }
        // No name holds this byte, so that ("a", "bc") and ("ab", "c") differ.
        state.write_u8(0xff);
    }
}

impl Ord for ArmName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folded().cmp(other.folded())
    }
}

impl PartialOrd for ArmName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Why a text is not the name of an Azure resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no text at all.
    #[error("it is empty")]
    Empty,
    /// `.` and `..` mean another place in a URL.
    #[error("it consists of dots")]
    Dots,
    /// Names hold letters, digits, `-`, `_`, `.`, `(` and `)`.
    #[error("it holds {character:?}, which no Azure name does")]
    BadCharacter {
        /// The first such character.
        character: char,
    },
}

/// The number of an instance in its scale set, written as Azure writes it: without sign or leading zeros, so that
/// every number has one spelling.
pub(crate) fn parse_instance_id(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|id| id.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_can_stand_between_two_slashes() {
        let parse = |text: &str| text.parse::<ArmName>().map(|name| name.to_string());
        assert_eq!(parse("MC_group(west).1"), Ok("MC_group(west).1".to_owned()));
        assert_eq!(parse("größe"), Ok("größe".to_owned()));
        assert_eq!(parse(""), Err(NameError::Empty));
        assert_eq!(parse(".."), Err(NameError::Dots));
        for character in ['/', '?', '#', '%', '\\', ' ', '\n', '\0'] {
            assert_eq!(parse(&format!("a{character}b")), Err(NameError::BadCharacter { character }));
        }
    }

    #[test]
    fn an_instance_id_has_one_spelling() {
        assert_eq!(parse_instance_id("0"), Some(0));
        assert_eq!(parse_instance_id("4294967295"), Some(u32::MAX));
        for text in ["", "+1", "-1", "01", "00", " 1", "4294967296", "a", "٣"] {
            assert_eq!(parse_instance_id(text), None, "{text:?}");
        }
    }
}
