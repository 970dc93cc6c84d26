//! Images that arrive from the network.

pub(crate) use brisk_remote::{
    Absent, Arrival, Arriving, Class, Descriptor, Entry, Error, FetcherPlace, ParkingImage,
    RemoteCache, RemoteUrl, WaitingImage, attach,
};
