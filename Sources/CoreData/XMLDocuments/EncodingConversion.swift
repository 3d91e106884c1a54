import Glibc

/// The conversion of documents to UTF-8 by iconv(3), from encodings that expat doesn't know.
enum EncodingConversion {
    /// Returns UTF-32's name if the document begins like one (www.w3.org/TR/xml, appendix F). Its first bytes could be
    /// taken for UTF-16.
    static func wideEncoding(of bytes: [UInt8]) -> String? {
        switch Array(bytes.prefix(4)) {
        case [0, 0, 0xFE, 0xFF], [0, 0, 0, 0x3C]: "UTF-32BE"
        case [0xFF, 0xFE, 0, 0], [0x3C, 0, 0, 0]: "UTF-32LE"
        default: nil
        }
    }

    private static let ascii = [0x09, 0x0A, 0x0D] + Array(UInt8(0x20)...0x7E)

    /// Converts a document. Throws `MarkupError` for an unknown encoding, and for bytes that aren't in it.
    static func utf8(_ bytes: [UInt8], from encoding: String) throws(MarkupError) -> [UInt8] {
        // A slash would begin an option, of which one drops characters.
        let isName = encoding.utf8.allSatisfy { isalnum(Int32($0)) != 0 || Array("-_.:".utf8).contains($0) }
        guard isName, let converter = iconv_open("UTF-8", encoding), converter != iconv_t(bitPattern: -1) else {
            throw MarkupError(
                message: "the encoding “\(encoding)” is unknown; convert the file to UTF-8, with its declaration",
                line: 1)
        }
        defer { iconv_close(converter) }
        // Markup is ASCII. Some encodings, such as glibc's SHIFT_JIS, have a “¥” where others have “\\”.
        if !encoding.hasPrefix("UTF-32"), convert(ascii, by: converter) != .success(ascii) {
            throw MarkupError(
                message: "the encoding “\(encoding)” isn't an extension of ASCII; convert the file to UTF-8, with its "
                    + "declaration", line: 1)
        }
        switch convert(bytes, by: converter) {
        case .success(let converted): return converted
        case .failure(let error):
            throw MarkupError(
                message: "a character is not valid \(encoding), which the document is said to be in", line: error.line)
        }
    }

    private struct InvalidCharacter: Error, Equatable {
        let line: Int
    }

    private static func convert(_ bytes: [UInt8], by converter: iconv_t) -> Result<[UInt8], InvalidCharacter> {
        // Begins in the encoding's initial state.
        iconv(converter, nil, nil, nil, nil)
        var input = bytes
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count + bytes.count / 8)
        let error: Int32 = input.withUnsafeMutableBytes { input in
            var next = input.baseAddress?.assumingMemoryBound(to: CChar.self)
            var remaining = input.count
            let output = UnsafeMutableBufferPointer<CChar>.allocate(capacity: 1 << 16)
            defer { output.deallocate() }
            while true {
                var end = output.baseAddress
                var free = output.count
                // The last call, without input, ends a stateful encoding.
                let isLast = remaining == 0
                let status =
                    isLast
                    ? iconv(converter, nil, nil, &end, &free) : iconv(converter, &next, &remaining, &end, &free)
                let failure = status == -1 ? errno : 0
                result += UnsafeRawBufferPointer(output).prefix(output.count - free)
                guard failure == 0 || failure == E2BIG else { return failure }
                if isLast, failure == 0 { return 0 }
            }
        }
        return error == 0 ? .success(result) : .failure(InvalidCharacter(line: result.count { $0 == 0x0A } + 1))
    }
}
