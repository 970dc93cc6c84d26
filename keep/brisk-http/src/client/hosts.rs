//! How many requests are under way to each host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::Uri;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// With more hosts than these, those that have nothing under way are forgotten.
const MOST_IDLE: usize = 256;

#[derive(Debug)]
pub(crate) struct Hosts {
    most: usize,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A request that is under way, until this is dropped. None if there is no bound any more.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

impl Hosts {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            hosts: Mutex::default(),
        }
    }

    /// Waits until a request to the host and port of a URL may be sent.
    pub(crate) async fn permit(&self, url: &Uri) -> Permit {
        let host = url.authority().map_or("", |authority| authority.as_str());
        // A user is no part of a host.
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let semaphore = self.semaphore(&host.to_ascii_lowercase());
        // It is never closed.
        semaphore.acquire_owned().await.ok()
    }

    fn semaphore(&self, host: &str) -> Arc<Semaphore> {
        // Each change leaves the map whole.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = hosts.get(host) {
            return Arc::clone(semaphore);
        }
        if hosts.len() >= MOST_IDLE {
            hosts.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(self.most));
        hosts.insert(host.to_owned(), Arc::clone(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_is_in_use_is_never_forgotten() {
        let hosts = Hosts::new(1);
        let url = |number: usize| Uri::try_from(format!("http://User@Host{number}/")).unwrap();
        let permit = hosts.permit(&url(0)).await;
        for number in 1..2 * MOST_IDLE {
            hosts.permit(&url(number)).await;
        }
        assert!(hosts.hosts.lock().unwrap().len() <= MOST_IDLE + 1);
        let same = hosts.semaphore("host0");
        assert_eq!(same.available_permits(), 0);
        drop(permit);
        assert_eq!(same.available_permits(), 1);
    }
}
