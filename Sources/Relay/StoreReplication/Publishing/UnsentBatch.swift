import PersistentHistory

/// A batch that was read at home. It holds no connection to the store: its lines wait in memory, or if they are many in
/// a file without a name.
package struct UnsentBatch {
    /// The token after which the batch begins.
    package let from: HistoryToken
    let content: BatchContent
    /// The number of snapshots that were made before it was read.
    let snapshots: Int

    /// The token that the batch leads to.
    package var upto: HistoryToken { content.upto }

    /// Passes the batch's parts, in order. For the same size they are the same each time. Throws what `body` throws,
    /// and `SystemError`.
    package func forEachPart(maxSize: Int, _ body: (BatchPart) throws -> Void) throws {
        try withoutActuallyEscaping(body) { body in
            var writer = PartWriter(content, from: from, maxPartSize: maxSize, send: body)
            try writer.run()
        }
    }
}
