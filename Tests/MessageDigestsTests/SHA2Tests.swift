import Testing

import MessageDigests

/// The examples of the validation pages of FIPS 180-4 (csrc.nist.gov), and lengths around the end of a block.
@Suite struct SHA2Tests {
    private static func hexadecimal(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    @Test(arguments: [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        ),
    ])
    func computesSHA256(_ text: String, _ hash: String) {
        #expect(Self.hexadecimal(SHA2.sha256(Array(text.utf8))) == hash)
    }

    @Test(arguments: [
        (
            "abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        ),
        (
            "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                + "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
                + "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"
        ),
    ])
    func computesSHA512(_ text: String, _ hash: String) {
        #expect(Self.hexadecimal(SHA2.sha512(Array(text.utf8))) == hash)
    }

    /// Each length up to two blocks has its own padding. The hash of all their hashes is known.
    @Test func padsEveryLengthAroundABlock() {
        var short: [UInt8] = []
        var long: [UInt8] = []
        for length in 0...260 {
            let message = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
            short += SHA2.sha256(message)
            long += SHA2.sha512(message)
        }
        #expect(
            Self.hexadecimal(SHA2.sha256(short)) == "b462003d0a60fe61db68b56c40eec21e993531dd139094e48ded151822bfadf9")
        #expect(
            Self.hexadecimal(SHA2.sha256(long)) == "d39d1e86023c6a77c3a50988edc198432a9a433d0e52ab64f41821af77246fd1")
    }
}
