//! Tokens from Microsoft Entra, by way of the `azure_identity` crate.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use azure_core::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::ClientOptions;
use azure_identity::{
    AzureCliCredential, ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use url::Url;

use crate::certificate::Assertion;
use crate::endpoint::secure_base;
use crate::{
    CachedCredential, ClientCertificate, Cloud, CredentialError, EndpointError, FreshToken, Token,
    TokenSource,
};

/// Who to sign in as. `Debug` prints no secret.
#[derive(Clone)]
pub enum Identity {
    /// The identity of a pod, from `AZURE_CLIENT_ID`, `AZURE_TENANT_ID` and `AZURE_FEDERATED_TOKEN_FILE`.
    Workload,
    /// The identity of the virtual machine itself.
    SystemAssigned,
    /// An identity that is assigned to the virtual machine, by its client id.
    UserAssignedClient(String),
    /// An identity that is assigned to the virtual machine, by its object id.
    UserAssignedObject(String),
    /// An identity that is assigned to the virtual machine, by its resource id.
    UserAssignedResource(String),
    /// An application with a secret.
    ClientSecret {
        /// The tenant's id.
        tenant: String,
        /// The application's client id.
        client: String,
        /// The secret.
        secret: String,
    },
    /// An application with a certificate.
    ClientCertificate {
        /// The tenant's id.
        tenant: String,
        /// The application's client id.
        client: String,
        /// The certificate with its private key.
        certificate: ClientCertificate,
    },
    /// Whoever is signed in to the Azure CLI; for people.
    AzureCli,
}

impl Identity {
    /// The identity's credential in `cloud`, with its tokens kept. For [`Cloud::Custom`], it signs in where the public cloud
    /// does, as is right for a private endpoint of that; a cloud with its own authority needs [`Identity::at_authority`].
    #[must_use]
    pub fn in_cloud(self, cloud: &Cloud) -> CachedCredential<AzureIdentity> {
        let authority = match cloud {
            Cloud::Public | Cloud::Custom { .. } => Authority::Public,
            Cloud::China => Authority::China,
            Cloud::UsGov => Authority::UsGov,
        };
        CachedCredential::new(AzureIdentity { identity: self, authority })
    }

    /// The identity's credential with its tokens kept, where one signs in at `authority`, such as
    /// `https://login.microsoftonline.com`: for an air-gapped cloud or Azure Stack, whose [`Cloud::Custom`] says the rest.
    ///
    /// Managed identities and the Azure CLI know by themselves where to sign in, and do not ask this.
    ///
    /// # Errors
    /// [`EndpointError`] when it is not the https URL of a host.
    pub fn at_authority(self, authority: &str) -> Result<CachedCredential<AzureIdentity>, EndpointError> {
        let url = secure_base(authority)?;
        // Tenants are the first part of the path there.
        if url.path() != "/" {
            return Err(EndpointError::NotABase);
        }
        Ok(CachedCredential::new(AzureIdentity { identity: self, authority: Authority::Custom(url) }))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload => f.write_str("Workload"),
            Self::SystemAssigned => f.write_str("SystemAssigned"),
            Self::UserAssignedClient(id) => f.debug_tuple("UserAssignedClient").field(id).finish(),
            Self::UserAssignedObject(id) => f.debug_tuple("UserAssignedObject").field(id).finish(),
            Self::UserAssignedResource(id) => f.debug_tuple("UserAssignedResource").field(id).finish(),
            Self::ClientSecret { tenant, client, .. } => f
                .debug_struct("ClientSecret")
                .field("tenant", tenant)
                .field("client", client)
                .finish_non_exhaustive(),
            Self::ClientCertificate { tenant, client, certificate } => f
                .debug_struct("ClientCertificate")
                .field("tenant", tenant)
                .field("client", client)
                .field("certificate", certificate)
                .finish(),
            Self::AzureCli => f.write_str("AzureCli"),
        }
    }
}

/// Where to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Authority {
    Public,
    China,
    UsGov,
    Custom(Url),
}

impl Authority {
    /// Its base URL, without a slash at its end.
    fn url(&self) -> &str {
        match self {
            Self::Public => "https://login.microsoftonline.com",
            Self::China => "https://login.chinacloudapi.cn",
            Self::UsGov => "https://login.microsoftonline.us",
            Self::Custom(url) => url.as_str().trim_end_matches('/'),
        }
    }
}

/// Asks Entra, or whoever stands for it on this machine, for the tokens of an [`Identity`].
///
/// Each question is asked by a credential made for it: `azure_identity` keeps tokens too, and would hand one out again after
/// it was rejected, or fail while the one that it holds is still good.
#[derive(Clone, Debug)]
pub struct AzureIdentity {
    identity: Identity,
    authority: Authority,
}

impl AzureIdentity {
    fn credential(&self) -> azure_core::Result<Arc<dyn TokenCredential>> {
        let client_options = || {
            let mut cloud = CustomConfiguration::default();
            cloud.authority_host = self.authority.url().to_owned();
            let cloud = Some(Arc::new(CloudConfiguration::from(cloud)));
            ClientOptions { cloud, ..ClientOptions::default() }
        };
        let managed = |user_assigned_id| {
            let options = ManagedIdentityCredentialOptions { user_assigned_id, ..Default::default() };
            ManagedIdentityCredential::new(Some(options))
        };
        Ok(match &self.identity {
            Identity::Workload => {
                let credential_options =
                    ClientAssertionCredentialOptions { client_options: client_options() };
                let options = WorkloadIdentityCredentialOptions { credential_options, ..Default::default() };
                WorkloadIdentityCredential::new(Some(options))?
            }
            Identity::SystemAssigned => managed(None)?,
            Identity::UserAssignedClient(id) => managed(Some(UserAssignedId::ClientId(id.clone())))?,
            Identity::UserAssignedObject(id) => managed(Some(UserAssignedId::ObjectId(id.clone())))?,
            Identity::UserAssignedResource(id) => managed(Some(UserAssignedId::ResourceId(id.clone())))?,
            Identity::ClientSecret { tenant, client, secret } => ClientSecretCredential::new(
                tenant,
                client.clone(),
                Secret::new(secret.clone()),
                Some(ClientSecretCredentialOptions { client_options: client_options() }),
            )?,
            Identity::ClientCertificate { tenant, client, certificate } => {
                let audience = format!("{}/{tenant}/oauth2/v2.0/token", self.authority.url());
                ClientAssertionCredential::new(
                    tenant.clone(),
                    client.clone(),
                    Assertion { certificate: certificate.clone(), client: client.clone(), audience },
                    Some(ClientAssertionCredentialOptions { client_options: client_options() }),
                )?
            }
            Identity::AzureCli => AzureCliCredential::new(None)?,
        })
    }
}

#[async_trait]
impl TokenSource for AzureIdentity {
    async fn fetch(&self, scope: &str) -> Result<FreshToken, CredentialError> {
        let fetched = self.credential()?.get_token(&[scope], None).await?;
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ends = u64::try_from(fetched.expires_on.unix_timestamp()).unwrap_or_default();
        Ok(FreshToken {
            token: Token::new(fetched.token.secret())?,
            lifetime: Duration::from_secs(ends).saturating_sub(since_epoch),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credential, certificate};

    fn secret(tenant: &str) -> Identity {
        Identity::ClientSecret { tenant: tenant.into(), client: "c".into(), secret: "S3CRET".into() }
    }

    #[test]
    fn nothing_prints_the_secret() {
        let credential = secret("t").in_cloud(&Cloud::China);
        assert_eq!(
            format!("{credential:?}"),
            "CachedCredential { source: AzureIdentity { identity: ClientSecret { tenant: \"t\", client: \"c\", .. }, \
             authority: China }, .. }"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_an_identity_is_an_error_and_sends_nothing() {
        for (identity, says) in [(secret("not/a/tenant"), "tenant"), (secret(""), "tenant")] {
            let error = identity.in_cloud(&Cloud::Public).token("https://sim/.default").await.unwrap_err();
            assert!(error.to_string().to_lowercase().contains(says), "{error}");
            assert!(!format!("{error:?}").contains("S3CRET"), "{error:?}");
        }
    }

    #[test]
    fn every_identity_that_needs_nothing_from_its_surroundings_can_be_made() {
        for identity in [
            secret("t"),
            Identity::SystemAssigned,
            Identity::UserAssignedClient("c".into()),
            Identity::UserAssignedObject("o".into()),
            Identity::UserAssignedResource("/r".into()),
            Identity::AzureCli,
        ] {
            let authority = Authority::Custom(Url::parse("https://login.stack.example").unwrap());
            for authority in [Authority::UsGov, authority] {
                let source = AzureIdentity { identity: identity.clone(), authority };
                assert!(source.credential().is_ok(), "{source:?}");
            }
        }
    }

    #[test]
    fn a_certificate_signs_in_at_the_authority_of_its_cloud() {
        let certificate = certificate::tests::example();
        let (tenant, client) = ("t".to_owned(), "c".to_owned());
        let identity = Identity::ClientCertificate { tenant, client, certificate };
        let source = AzureIdentity { identity, authority: Authority::China };
        let credential = format!("{:?}", source.credential().unwrap());
        assert!(credential.contains("login.chinacloudapi.cn"), "{credential}");
    }

    #[test]
    fn one_signs_in_where_the_cloud_or_its_owner_says() {
        let of = |credential: CachedCredential<AzureIdentity>| {
            let text = format!("{credential:?}");
            text.split_once("authority: ").unwrap().1.split_once(" }").unwrap().0.to_owned()
        };
        let custom = Cloud::Custom { endpoint: "https://arm.example".into(), audience: "https://a".into() };
        let clouds =
            [Cloud::Public, Cloud::China, Cloud::UsGov, custom].map(|it| of(secret("t").in_cloud(&it)));
        assert_eq!(clouds, ["Public", "China", "UsGov", "Public"]);
        assert_eq!(
            [Authority::Public, Authority::China, Authority::UsGov].map(|it| it.url().to_owned()),
            [
                "https://login.microsoftonline.com",
                "https://login.chinacloudapi.cn",
                "https://login.microsoftonline.us"
            ]
        );
        let at = |authority| secret("t").at_authority(authority);
        let own = at("https://login.stack.example/").unwrap();
        assert!(format!("{own:?}").contains("login.stack.example"), "{own:?}");
        let own = Authority::Custom(Url::parse("https://login.stack.example").unwrap());
        assert_eq!(own.url(), "https://login.stack.example");
        // Secrets go there, so not even this machine may be asked in plain text.
        for plain in ["http://login.stack.example", "http://127.0.0.1:1"] {
            assert_eq!(at(plain).err(), Some(EndpointError::Scheme { scheme: "http".into() }), "{plain}");
        }
        for odd in ["https://login.example/tenant", "https://login.example/?a=b"] {
            assert_eq!(at(odd).err(), Some(EndpointError::NotABase), "{odd}");
        }
    }
}
