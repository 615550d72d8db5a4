//! A short story in a simulated Azure.

use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint};
use clb_sim::azure::{AzureConfig, ComputeConfig, Power};
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::{Simulation, SimulatorConfig};
use clb_vmss::models::{IpConfiguration, ScaleSet};
use clb_vmss::{
    CacheConfig, CallContext, Membership, MembershipConfig, Outcome, ResourceGroupKey, ScaleSetKey, VmssApi,
    VmssCache, VmssClient,
};
use serde_json::json;

use crate::Error;

/// How many rounds a step is watched for: what it begins is over by then.
pub(crate) const ROUNDS: usize = 4;

/// What happens, one after another.
pub(crate) const STEPS: [Step; 7] = [
    Step::Furnish,
    Step::ScaleOut,
    Step::SwitchOff,
    Step::Reimage,
    Step::Outage,
    Step::Delete,
    Step::DeleteSet,
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Furnish,
    ScaleOut,
    SwitchOff,
    Reimage,
    Outage,
    Delete,
    DeleteSet,
}

impl Step {
    pub(crate) fn says(self) -> &'static str {
        match self {
            Self::Furnish => "A uniform scale set of two and a flexible one of two are made.",
            Self::ScaleOut => "The uniform one is scaled out to three.",
            Self::SwitchOff => "Instance 0 is switched off.",
            Self::Reimage => {
                "The model gets IPv6, and instance 1 is reimaged: the same node, with an address more."
            }
            Self::Outage => "Azure does not answer for a while.",
            Self::Delete => "Instance 0 is deleted, which takes time; it is no node any more at once.",
            Self::DeleteSet => "The flexible scale set is deleted.",
        }
    }
}

/// The simulated Azure, and who changes it.
pub(crate) struct Story {
    simulation: Simulation,
    vmss: Arc<VmssClient>,
    uniform: ScaleSetKey,
    flexible: ScaleSetKey,
}

/// A simulated Azure in which nothing has happened yet, and what it is read through.
pub(crate) fn begin() -> Result<(Story, Arc<dyn VmssApi>), Error> {
    let compute = ComputeConfig {
        creation: Duration::from_millis(1500),
        update: Duration::from_millis(1500),
        deletion: Duration::from_millis(2500),
        ..ComputeConfig::default()
    };
    let azure = AzureConfig { compute, ..AzureConfig::default() };
    let simulation = Simulation::new(SimulatorConfig { azure, ..SimulatorConfig::default() });
    let cloud =
        Cloud::Custom { endpoint: "http://localhost".to_owned(), audience: "https://simulator".to_owned() };
    let arm = ArmClient::builder(Endpoint::new(&cloud)?, Anonymous, simulation.transport()).build();
    let vmss = Arc::new(VmssClient::new(arm));
    let (subscription, resource_group): (clb_vmss::ArmName, clb_vmss::ArmName) =
        ("s".parse()?, "rg".parse()?);
    let uniform = ScaleSetKey { subscription, resource_group, name: "aks-pool".parse()? };
    let flexible = ScaleSetKey { name: "aks-flex".parse()?, ..uniform.clone() };
    Ok((Story { simulation, vmss: Arc::clone(&vmss), uniform, flexible }, vmss))
}

impl Story {
    pub(crate) fn group(&self) -> ResourceGroupKey {
        self.uniform.group()
    }

    /// Lets a step happen, and returns when Azure has done it.
    pub(crate) async fn act(&self, step: Step) -> Result<(), Error> {
        let call = CallContext::random();
        match step {
            Step::Furnish => self.furnish().await,
            Step::ScaleOut => Ok(self.membership().scale(&call, &self.uniform, 3).await?),
            Step::SwitchOff => {
                let instance = self.uniform.instance(0).resource_id();
                self.simulation.with_azure(|azure| azure.set_power(&instance, Power::Stopped));
                Ok(())
            }
            Step::Reimage => {
                self.add_ipv6(&call).await?;
                let instance = self.uniform.instance(1).resource_id();
                self.simulation.with_azure(|azure| azure.reimage(&instance));
                Ok(())
            }
            Step::Outage => {
                let refused = How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
                let outage = FaultPlan::new(0).with(When::Always, What::default(), refused);
                self.simulation.set_faults(outage);
                tokio::time::sleep(Duration::from_millis(2500)).await;
                self.simulation.set_faults(FaultPlan::default());
                Ok(())
            }
            Step::Delete => {
                let instance = self.uniform.instance(0);
                let outcomes = self.membership().delete(&call, &self.uniform, &[instance].into()).await;
                match outcomes.into_values().next() {
                    Some(Outcome::Failed(error)) => Err(error.into()),
                    Some(Outcome::Changed | Outcome::Unchanged | Outcome::Gone | Outcome::Skipped(_))
                    | None => Ok(()),
                }
            }
            Step::DeleteSet => Ok(self.vmss.delete_scale_set(&call, &self.flexible).await?),
        }
    }

    /// Makes two scale sets, one of each kind.
    pub(crate) async fn furnish(&self) -> Result<(), Error> {
        let (uniform, flexible) = (model(&self.uniform, "Uniform")?, model(&self.flexible, "Flexible")?);
        let (one, other) = (CallContext::random(), CallContext::random());
        tokio::try_join!(
            self.vmss.put_scale_set(&one, &self.uniform, &uniform),
            self.vmss.put_scale_set(&other, &self.flexible, &flexible),
        )?;
        Ok(())
    }

    /// Lets instances have an IPv6 address, too, from when they are made or reimaged.
    async fn add_ipv6(&self, call: &CallContext) -> Result<(), Error> {
        let set = self.vmss.get_scale_set(call, &self.uniform).await?;
        let mut set = set.ok_or("the scale set is gone")?;
        let model = set.properties.virtual_machine_profile.as_mut();
        let interface = model.and_then(|model| model.network_profile.configurations.first_mut());
        let interface = interface.ok_or("the model has no interface")?;
        interface.properties.ip_configurations.push(ip_configuration("IPv6")?);
        // With the ETag that it was read with: whoever else changes it meanwhile is not undone.
        self.vmss.put_scale_set(call, &self.uniform, &set).await?;
        Ok(())
    }

    /// A writer with a cache of its own, as another process would be.
    fn membership(&self) -> Membership {
        let vmss: Arc<dyn VmssApi> = Arc::<VmssClient>::clone(&self.vmss);
        let cache = VmssCache::new(vmss, [self.group()], CacheConfig::default());
        Membership::new(Arc::new(cache), MembershipConfig::default())
    }
}

fn ip_configuration(family: &str) -> serde_json::Result<IpConfiguration> {
    serde_json::from_value(json!({"name": family, "properties": {
        "primary": family == "IPv4", "privateIPAddressVersion": family, "subnet": {"id": "/subnet"}}}))
}

/// Two small machines that are called as the set is.
fn model(set: &ScaleSetKey, mode: &str) -> serde_json::Result<ScaleSet> {
    let interface = json!({"name": "nic", "properties": {
        "primary": true, "ipConfigurations": [ip_configuration("IPv4")?]}});
    serde_json::from_value(json!({
        "location": "eastus2", "sku": {"name": "Standard_D2s_v3", "capacity": 2},
        "properties": {"orchestrationMode": mode, "virtualMachineProfile": {
            "osProfile": {"computerNamePrefix": set.name.as_str(), "adminUsername": "azure"},
            "networkProfile": {"networkInterfaceConfigurations": [interface]}}}
    }))
}
