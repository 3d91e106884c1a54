/// The wire name of a store, `GROUP_ID/NAME`. Each process finds the group's directory in its own mount namespace.
package struct StoreAddress: Hashable, Sendable {
    package let group: String
    /// The database's file name in the group container: any bytes except slash and NUL.
    package let name: [UInt8]
    /// The hash, computed once because addresses are looked up many times for each event.
    private let digest: Int

    /// Creates an address. Returns nil if the name is empty, `.` or `..`, longer than 255 bytes, or contains a slash or
    /// NUL.
    package init?(group: String, name: [UInt8]) {
        guard !group.isEmpty, !group.utf8.contains(UInt8(ascii: "/")), !name.isEmpty, name.count <= 255,
            name != [0x2E], name != [0x2E, 0x2E], !name.contains(0), !name.contains(UInt8(ascii: "/"))
        else { return nil }
        self.group = group
        self.name = name
        var hasher = Hasher()
        hasher.combine(group)
        hasher.combine(name)
        digest = hasher.finalize()
    }

    package func hash(into hasher: inout Hasher) { hasher.combine(digest) }

    /// Parses `GROUP_ID/NAME`; returns nil for anything else.
    package init?(bytes: [UInt8]) {
        guard let slash = bytes.firstIndex(of: UInt8(ascii: "/")),
            let group = String(validating: bytes[..<slash], as: UTF8.self)
        else { return nil }
        self.init(group: group, name: Array(bytes[(slash + 1)...]))
    }

    package var bytes: [UInt8] { Array(group.utf8) + [UInt8(ascii: "/")] + name }
}

extension JSONObject {
    /// The store under `store` or `store_b64`; nil if there is none.
    package var store: StoreAddress? { path("store").flatMap(StoreAddress.init(bytes:)) }

    mutating func setStore(_ store: StoreAddress) { setPath("store", bytes: store.bytes) }
}
