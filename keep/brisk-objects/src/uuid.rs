//! UUIDs, stored as the 16 bytes that they are.

use uuid::Uuid;

use crate::key::{AsKey, Key};
use crate::key_bytes::KeyBytes;
use crate::kind::Type;
use crate::value::{Place, Value, ValueWriter};

impl Value for Uuid {
    const WIDTH: usize = <[u8; 16]>::WIDTH;
    const TYPE: Type = <[u8; 16]>::TYPE;
    type View<'a> = Uuid;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        self.as_bytes().write(out, at);
    }

    #[inline]
    fn view_at(place: Place<'_>) -> Uuid {
        Uuid::from_bytes(<[u8; 16]>::view_at(place))
    }

    fn owned(view: Uuid) -> Uuid {
        view
    }
}

impl AsKey<Uuid> for Uuid {
    fn encode_key(&self, out: &mut KeyBytes) {
        self.as_bytes().encode_key(out);
    }
}

impl Key for Uuid {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        <[u8; 16]>::decode(bytes).map(Self::from_bytes)
    }
}
