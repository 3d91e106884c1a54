import TestSupport
import Testing

@testable import ManagedObjectModels

@Suite struct DeflateTests {
    @Test func refusesBombs() throws {
        let bomb = try python(
            """
            import sys, zlib
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            sys.stdout.buffer.write(deflate.compress(b'\\0' * (80 << 20)) + deflate.flush())
            """)
        #expect(bomb.count < 100_000)
        #expect(Deflate.inflate(bomb, limit: 64 << 20) == nil)
        #expect(Deflate.inflate(bomb, limit: 80 << 20)?.count == 80 << 20)
        #expect(Deflate.inflate(Array(bomb.dropLast(10)), limit: 100 << 20) == nil)
        #expect(Deflate.inflate([1, 2, 3], limit: 100) == nil)
        #expect(Deflate.inflate([], limit: 100) == nil)
    }
}
