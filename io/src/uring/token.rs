//! What an order was for, packed into the number that comes back with its completion.

/// `[slot: 32][generation: 24][of: 8]`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Token {
    pub(super) of: Order,
    /// Modulo 2^24. It guards against what cannot happen: no slot is freed with orders in flight.
    pub(super) generation: u32,
    pub(super) slot: u32,
}

/// The kinds of orders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Order {
    Receive,
    SendAtOnce,
    SendSlowly,
    Dial,
    Accept,
    Bell,
    CallOff,
}

const ORDERS: [Order; 7] = [
    Order::Receive,
    Order::SendAtOnce,
    Order::SendSlowly,
    Order::Dial,
    Order::Accept,
    Order::Bell,
    Order::CallOff,
];

pub(super) const GENERATIONS: u32 = 1 << 24;

impl Token {
    pub(super) fn pack(self) -> u64 {
        let generation = u64::from(self.generation % GENERATIONS);
        u64::from(self.slot) << 32 | generation << 8 | self.of as u64
    }

    pub(super) fn unpack(packed: u64) -> Option<Self> {
        let of = *ORDERS.get((packed & 0xff) as usize)?;
        let generation = (packed >> 8) as u32 % GENERATIONS;
        Some(Self { of, generation, slot: (packed >> 32) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        for (at, of) in ORDERS.into_iter().enumerate() {
            assert_eq!(of as usize, at);
            let token = Token { of, generation: GENERATIONS - 1, slot: u32::MAX - 1 };
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
        assert_eq!(Token::unpack(0xff), None);
    }
}
