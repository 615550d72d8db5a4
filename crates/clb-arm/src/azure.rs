//! Tokens from Microsoft Entra, by way of the `azure_identity` crate.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use azure_core::cloud::CloudConfiguration;
use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::ClientOptions;
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use crate::{CachedCredential, Cloud, CredentialError, FreshToken, Token, TokenSource};

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
    /// Whoever is signed in to the Azure CLI; for people.
    AzureCli,
}

impl Identity {
    /// The identity's credential in `cloud`, with its tokens kept.
    #[must_use]
    pub fn in_cloud(self, cloud: &Cloud) -> CachedCredential<AzureIdentity> {
        let authority = match cloud {
            // A custom endpoint says nothing of a login authority of its own; a private endpoint has the public one.
            Cloud::Public | Cloud::Custom { .. } => Authority::Public,
            Cloud::China => Authority::China,
            Cloud::UsGov => Authority::UsGov,
        };
        CachedCredential::new(AzureIdentity { identity: self, authority })
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
            Self::AzureCli => f.write_str("AzureCli"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Authority {
    Public,
    China,
    UsGov,
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
        let client_options = || ClientOptions {
            cloud: Some(Arc::new(match self.authority {
                Authority::Public => CloudConfiguration::AzurePublic,
                Authority::China => CloudConfiguration::AzureChina,
                Authority::UsGov => CloudConfiguration::AzureGovernment,
            })),
            ..ClientOptions::default()
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
    use crate::Credential;

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
            let source = AzureIdentity { identity, authority: Authority::UsGov };
            assert!(source.credential().is_ok(), "{source:?}");
        }
    }
}
