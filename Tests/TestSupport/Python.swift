/// Returns the standard output of a Python program. It creates property lists and archives that this package can't
/// write.
package func python(_ program: String) throws -> [UInt8] {
    let done = try run("python3", ["-c", Word(program)])
    guard done.status == 0 else { throw Unexpected(done.errors) }
    return done.outputBytes
}
