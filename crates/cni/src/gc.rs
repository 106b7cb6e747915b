//! GC: everything comes back but what the runtime names.

use crate::{
    Configuration, Verb, call::Call, config::LogLevel, document::CniError, ipam, journal::UnreadableRecord,
    plugin::Work,
};

impl Work<'_> {
    /// Takes back the VFs of this network whose attachments are not named. What fails keeps nothing else back. A record that cannot be read is
    /// logged, and is a failure of the network that it names alone: it keeps its own VF from everybody, and nothing from other networks.
    pub(crate) fn gc(&mut self) -> Result<(), CniError> {
        let Some(valid) = &self.configuration.valid else {
            let text = "GC needs cni.dev/valid-attachments, the attachments that are still wanted";
            return Err(CniError::new(CniError::CONFIGURATION, text));
        };
        let (records, unreadable) = self.journal.all()?;
        let network = &self.configuration.name;
        unreadable.iter().for_each(|of| self.log.say(LogLevel::Warning, of.error.to_string()));
        let own = |of: UnreadableRecord| (of.network.as_ref() == Some(network)).then_some(of.error);
        let mut wrong: Vec<_> = unreadable.into_iter().filter_map(own).collect();
        let stale: Vec<_> = records
            .into_iter()
            .filter(|record| record.network == *network)
            .filter(|record| !valid.iter().any(|of| record.is_of(network, &of.container, &of.interface)))
            .collect();
        for record in stale {
            let (container, interface) = (record.container.clone(), record.interface.clone());
            // With the configuration that it was given by: older IPAM plugins know no GC.
            let call = Call {
                verb: Verb::Del,
                container: container.clone(),
                netns: None,
                interface: Some(interface.clone()),
                mac: None,
                path: self.call.path.clone(),
            };
            let given = Configuration::read(record.configuration.to_string().as_bytes(), None);
            wrong.extend(given.and_then(|given| ipam::delegate(&call, &given, "DEL")).err());
            let function = record.function;
            let lock = self.journal.lock(function);
            let again = lock.and_then(|lock| Ok((lock, self.journal.of(function)?)));
            match again {
                Ok((_lock, Some(record))) if record.is_of(network, &container, interface.as_str()) => {
                    self.log.say(LogLevel::Info, format!("{function} comes back from container {container}"));
                    wrong.extend(self.release(record).err());
                }
                Ok(_) => {}
                Err(error) => wrong.push(error),
            }
        }
        wrong.extend(ipam::delegate(self.call, self.configuration, "GC").err());
        let mut wrong = wrong.into_iter();
        let Some(first) = wrong.next() else { return Ok(()) };
        let others: Vec<String> = wrong.map(|error| error.to_string()).collect();
        Err(if others.is_empty() { first } else { first.hint(others.join("; ")) })
    }
}
