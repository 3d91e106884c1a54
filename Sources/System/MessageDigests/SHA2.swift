/// The SHA-256 and SHA-512 hashes (FIPS 180-4, sections 4 to 6).
///
/// Hand-written to keep swift-crypto and BoringSSL out of every app that reads a model. It has a target of its own,
/// which the build of the tests can optimize without the rest.
///
/// The two differ in word width, number of rounds and rotation distances. Their constants are the first bits of the
/// same roots, so the shorter ones are the upper halves of the longer ones.
package enum SHA2 {
    package static func sha256(_ bytes: [UInt8]) -> [UInt8] { digest(bytes, Short.self) }
    package static func sha512(_ bytes: [UInt8]) -> [UInt8] { digest(bytes, Long.self) }

    /// Distances of rotations to the right. The last distance of each small sigma is a shift.
    fileprivate typealias Distances = (Int, Int, Int)

    fileprivate protocol Variant {
        associatedtype Word: FixedWidthInteger & UnsignedInteger
        static var rounds: Int { get }
        static var constants: [Word] { get }
        static var initialState: [Word] { get }
        static var choiceSum: Distances { get }
        static var majoritySum: Distances { get }
        static var lowerSigma: Distances { get }
        static var upperSigma: Distances { get }
    }

    private enum Short: Variant {
        typealias Word = UInt32
        static let rounds = 64
        static let constants = cubeRoots.prefix(rounds).map { UInt32($0 >> 32) }
        static let initialState = squareRoots.map { UInt32($0 >> 32) }
        static let choiceSum = (6, 11, 25)
        static let majoritySum = (2, 13, 22)
        static let lowerSigma = (7, 18, 3)
        static let upperSigma = (17, 19, 10)
    }

    private enum Long: Variant {
        typealias Word = UInt64
        static let rounds = 80
        static let constants = cubeRoots
        static let initialState = squareRoots
        static let choiceSum = (14, 18, 41)
        static let majoritySum = (28, 34, 39)
        static let lowerSigma = (1, 8, 7)
        static let upperSigma = (19, 61, 6)
    }

    private static func digest<V: Variant>(_ bytes: [UInt8], _ variant: V.Type) -> [UInt8] {
        let constants = V.constants
        var state = V.initialState
        let message = padded(bytes, blockSize: 2 * V.Word.bitWidth)
        for start in stride(from: 0, to: message.count, by: 2 * V.Word.bitWidth) {
            compress(message[start..<start + 2 * V.Word.bitWidth], into: &state, constants: constants, variant)
        }
        return state.flatMap { word in
            stride(from: V.Word.bitWidth - 8, through: 0, by: -8).map { UInt8(truncatingIfNeeded: word >> V.Word($0)) }
        }
    }

    /// Returns the message with its padding: a one bit, zeros, and the length in bits, which takes an eighth of a
    /// block.
    private static func padded(_ bytes: [UInt8], blockSize: Int) -> [UInt8] {
        let lengthSize = blockSize / 8
        var message = bytes + [0x80]
        while message.count % blockSize != blockSize - lengthSize { message.append(0) }
        // The length of every message here fits into 64 bits.
        message += [UInt8](repeating: 0, count: lengthSize - 8)
        let bits = UInt64(bytes.count) * 8
        return message + stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: bits >> UInt64($0)) }
    }

    private static func compress<V: Variant>(
        _ block: ArraySlice<UInt8>, into state: inout [V.Word], constants: [V.Word], _ variant: V.Type
    ) {
        var schedule = words(block, V.Word.self)
        schedule.reserveCapacity(V.rounds)
        for round in 16..<V.rounds {
            let lower = sigma(schedule[round - 15], V.lowerSigma)
            let upper = sigma(schedule[round - 2], V.upperSigma)
            schedule.append(schedule[round - 16] &+ lower &+ schedule[round - 7] &+ upper)
        }
        var (a, b, c, d) = (state[0], state[1], state[2], state[3])
        var (e, f, g, h) = (state[4], state[5], state[6], state[7])
        for round in 0..<V.rounds {
            let choice = (e & f) ^ (~e & g)
            let first = h &+ sum(e, V.choiceSum) &+ choice &+ constants[round] &+ schedule[round]
            let second = sum(a, V.majoritySum) &+ ((a & b) ^ (a & c) ^ (b & c))
            (h, g, f, e, d, c, b, a) = (g, f, e, d &+ first, c, b, a, first &+ second)
        }
        for (index, word) in [a, b, c, d, e, f, g, h].enumerated() { state[index] &+= word }
    }

    /// Returns a block's sixteen big-endian words.
    private static func words<Word: FixedWidthInteger>(_ block: ArraySlice<UInt8>, _ type: Word.Type) -> [Word] {
        block.withUnsafeBytes { bytes in
            (0..<16).map {
                Word(bigEndian: bytes.loadUnaligned(fromByteOffset: $0 * MemoryLayout<Word>.size, as: Word.self))
            }
        }
    }

    @inline(__always)
    private static func rotated<Word: FixedWidthInteger>(_ word: Word, _ distance: Int) -> Word {
        word &>> Word(truncatingIfNeeded: distance) | word &<< Word(truncatingIfNeeded: Word.bitWidth - distance)
    }

    @inline(__always)
    private static func sum<Word: FixedWidthInteger>(_ word: Word, _ by: Distances) -> Word {
        rotated(word, by.0) ^ rotated(word, by.1) ^ rotated(word, by.2)
    }

    @inline(__always)
    private static func sigma<Word: FixedWidthInteger>(_ word: Word, _ by: Distances) -> Word {
        rotated(word, by.0) ^ rotated(word, by.1) ^ (word &>> Word(truncatingIfNeeded: by.2))
    }

    /// The first 64 bits of the fractional parts of the square roots of the first 8 primes.
    private static let squareRoots: [UInt64] = [
        0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
        0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
    ]

    /// The first 64 bits of the fractional parts of the cube roots of the first 80 primes.
    private static let cubeRoots: [UInt64] = [
        0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
        0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
        0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
        0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
        0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
        0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
        0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
        0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
        0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
        0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
        0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
        0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
        0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
        0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
        0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
        0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
        0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
        0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
        0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
        0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
    ]
}
