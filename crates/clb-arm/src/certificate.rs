//! Signing in with a certificate.
//!
//! Entra takes, instead of a secret, a short-lived JSON web token that says who asks and is signed with the certificate's
//! private key. `azure_identity` makes such tokens with OpenSSL only; this makes them with the cryptography that TLS uses here.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PSS_SHA256, RsaKeyPair};
use aws_lc_rs::{digest, error::Unspecified};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use uuid::Uuid;

/// How long an assertion is good for. It is used at once; the rest is for clocks that differ.
const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// A certificate with its private key, to sign in with. Cloning is cheap, and `Debug` prints the thumbprint only.
#[derive(Clone)]
pub struct ClientCertificate {
    key: Arc<RsaKeyPair>,
    /// SHA-256 of the certificate, base64url; Entra finds the certificate by it.
    thumbprint: String,
}

/// Why a file is not a certificate to sign in with. It prints nothing of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCertificate {
    /// There is no certificate in it.
    #[error("there is no PEM certificate (BEGIN CERTIFICATE)")]
    NoCertificate,
    /// There is no private key in it, or only one that is encrypted.
    #[error("there is no unencrypted PEM private key (BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY)")]
    NoKey,
    /// The private key is not one that Entra takes.
    #[error("the private key is not an RSA key of at least 2048 bits")]
    NotRsa,
}

impl ClientCertificate {
    /// Reads PEM text that holds a certificate and its RSA private key, in any order and perhaps among others: the first of
    /// each counts.
    ///
    /// # Errors
    /// [`InvalidCertificate`] when one of them is missing or is not usable.
    pub fn from_pem(pem: &[u8]) -> Result<Self, InvalidCertificate> {
        let certificate =
            CertificateDer::from_pem_slice(pem).map_err(|_| InvalidCertificate::NoCertificate)?;
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(|_| InvalidCertificate::NoKey)? {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Sec1(_) | _ => return Err(InvalidCertificate::NotRsa),
        };
        let key = Arc::new(key.map_err(|_| InvalidCertificate::NotRsa)?);
        let thumbprint = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &certificate));
        Ok(Self { key, thumbprint })
    }

    /// A token that says to `audience` that `client` asks, and is called `id`.
    fn assertion(
        &self,
        client: &str,
        audience: &str,
        id: Uuid,
        now: SystemTime,
    ) -> Result<String, Unspecified> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let header = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": self.thumbprint});
        let claims = json!({
            "aud": audience, "iss": client, "sub": client, "jti": id.to_string(),
            "nbf": now.as_secs(), "exp": (now + LIFETIME).as_secs(),
        });
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key.sign(&RSA_PSS_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("thumbprint", &self.thumbprint).finish_non_exhaustive()
    }
}

/// Proves by `certificate` to be `client`.
#[derive(Debug)]
pub(crate) struct Assertion {
    pub(crate) certificate: ClientCertificate,
    pub(crate) client: String,
    /// The token service's URL.
    pub(crate) audience: String,
}

#[async_trait]
impl ClientAssertion for Assertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        let Self { certificate, client, audience } = self;
        certificate
            .assertion(client, audience, Uuid::new_v4(), SystemTime::now())
            .map_err(|error| azure_core::Error::new(azure_core::error::ErrorKind::Credential, error))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
    };
    use base64::engine::general_purpose::STANDARD;
    use serde_json::Value;

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    /// Only its hash matters, so it need not be one.
    const CERTIFICATE: &[u8] = b"the certificate";

    fn key_pair() -> (RsaKeyPair, String) {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let text = pem("PRIVATE KEY", der.as_ref());
        (key, text)
    }

    /// Some certificate with its key.
    pub(crate) fn example() -> ClientCertificate {
        let text = pem("CERTIFICATE", CERTIFICATE) + &key_pair().1;
        ClientCertificate::from_pem(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_assertion_is_what_entra_asks_for_and_bears_the_keys_signature() {
        let (key, key_pem) = key_pair();
        let certificate = pem("CERTIFICATE", CERTIFICATE) + &pem("CERTIFICATE", b"its issuer");
        for text in [format!("{certificate}{key_pem}"), format!("{key_pem}{certificate}")] {
            let certificate = ClientCertificate::from_pem(text.as_bytes()).unwrap();
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
            let token = certificate.assertion("c", "https://login/t", Uuid::nil(), now).unwrap();
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let (header, claims) = signed.split_once('.').unwrap();
            let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
            let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
            assert_eq!(
                json(header),
                json!({"alg": "PS256", "typ": "JWT",
                    "x5t#S256": URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, CERTIFICATE))})
            );
            assert_eq!(
                json(claims),
                json!({"aud": "https://login/t", "iss": "c", "sub": "c", "nbf": 1000, "exp": 1600,
                    "jti": "00000000-0000-0000-0000-000000000000"})
            );
            let public = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key.public_key());
            public.verify(signed.as_bytes(), &decode(signature)).unwrap();
        }
    }

    #[test]
    fn what_cannot_sign_in_is_refused_with_the_reason() {
        let (_, key) = key_pair();
        let certificate = pem("CERTIFICATE", CERTIFICATE);
        let curve = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let curve = pem("PRIVATE KEY", curve.to_pkcs8v1().unwrap().as_ref());
        for (text, expected) in [
            (String::new(), InvalidCertificate::NoCertificate),
            (key, InvalidCertificate::NoCertificate),
            (certificate.clone(), InvalidCertificate::NoKey),
            (certificate.clone() + &pem("ENCRYPTED PRIVATE KEY", b"x"), InvalidCertificate::NoKey),
            (certificate.clone() + &pem("PRIVATE KEY", b"x"), InvalidCertificate::NotRsa),
            (certificate.clone() + &pem("EC PRIVATE KEY", b"x"), InvalidCertificate::NotRsa),
            (certificate + &curve, InvalidCertificate::NotRsa),
        ] {
            assert_eq!(ClientCertificate::from_pem(text.as_bytes()).err(), Some(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn each_sign_in_has_an_assertion_of_its_own_and_nothing_prints_the_key() {
        let certificate = example();
        let thumbprint = certificate.thumbprint.clone();
        assert_eq!(
            format!("{certificate:?}"),
            format!("ClientCertificate {{ thumbprint: {thumbprint:?}, .. }}")
        );
        let assertion = Assertion { certificate, client: "c".into(), audience: "a".into() };
        let (one, another) = (assertion.secret(None).await.unwrap(), assertion.secret(None).await.unwrap());
        assert_ne!(one, another);
    }
}
