import Testing

@testable import StoreRelocation

struct ContentHashTests {
    /// The hashes were computed by Debian's libxxhash 0.8.1. The lengths take each way through the algorithm.
    @Test(arguments: [
        (0, "99aa06d3014798d86001c324468d497f"), (1, "a6cd5e9392000f6ac44bdff4074eecdb"),
        (7, "db0172c49725ff06572ab15ffe6cbd8a"), (16, "ddf6c1254d70f76794eaa17b20756f46"),
        (100, "fc8da0d97205f51d6c45cd2f745cc3a7"), (200, "5451071ed36ad47079ad90815b45bbd9"),
        (1000, "5ed35fc6b4f0ef20d1eb8367bf3294e7"), (100_000, "70227b16fd5f74ef17a701075a95b432"),
    ])
    func hashesAsTheReferenceDoes(_ length: Int, _ expected: String) {
        let bytes = (0..<length).map { UInt8($0 * 7 % 251) }
        var hash = ContentHash()
        // Parts of uneven sizes, as they come from files.
        for start in stride(from: 0, to: length, by: 333) {
            bytes[start..<min(start + 333, length)].withUnsafeBytes { hash.update($0) }
        }
        #expect(hash.text() == "xxh3-128:" + expected)
    }
}
