import Foundation

/// Executes a driver's commands with the client library, one JSON object per line, and prints events in the same form.
/// The lines don't wait for each other: the driver waits for an answer where the order matters.
@main
struct LibraryActor {
    static func main() async {
        let cast = Cast()
        let lines = AsyncStream<String> { lines in
            Thread.detachNewThread {
                while let line = readLine() { lines.yield(line) }
                lines.finish()
            }
        }
        Report(event: "ready").send()
        for await line in lines {
            do {
                let request = try Request.read(line)
                Task.detached { await cast.play(request) }
            } catch {
                Report(event: "unreadable").with(error).send()
            }
        }
    }
}
