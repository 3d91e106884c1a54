/// A state of a store in which commits can be lost or hidden, as the events `hazard` and `hazard_over` describe it.
package struct HazardDescription: Sendable, Equatable {
    /// The kind, such as `orphaned_log`. A later agent may have others.
    package let code: String
    /// True if no commit is in danger yet: the state makes a loss possible.
    package let isWarning: Bool
    /// The process whose open file it is about; its number is 0 if the state has no process.
    package let holder: StoreEvent.Holder
    /// The file as the process names it. Empty for subscribers that may not know it.
    package let path: [UInt8]
    /// The inode of the file that the process has open.
    package let inode: UInt64
    /// The inode of the file that others find at its name; nil if there is none.
    package let expectedInode: UInt64?
    /// What is the matter, in one sentence.
    package let message: String
    /// What to do, in one line.
    package let hint: String

    package init(
        code: String, isWarning: Bool = false, holder: StoreEvent.Holder, path: [UInt8], inode: UInt64,
        expectedInode: UInt64?, message: String, hint: String
    ) {
        (self.code, self.isWarning, self.holder, self.path) = (code, isWarning, holder, path)
        (self.inode, self.expectedInode) = (inode, expectedInode)
        (self.message, self.hint) = (message, hint)
    }

    /// The same for a user who may read the store but perhaps not the places where others have it open.
    package var withoutPlaces: HazardDescription {
        HazardDescription(
            code: code, isWarning: isWarning, holder: holder, path: [], inode: inode, expectedInode: expectedInode,
            message: "\(holder.pid == 0 ? "a program" : "\(holder.program) (pid \(holder.pid))") uses the store so "
                + "that commits can be lost: \(code)",
            hint: "")
    }

    func write(to object: inout JSONObject, isOver: Bool) {
        object["code"] = .string(code)
        if isWarning { object["warning"] = true }
        if holder.pid != 0 { holder.write(to: &object) }
        if !path.isEmpty { object.setPath("path", bytes: path) }
        object["inode"] = .integer(Int64(bitPattern: inode))
        guard !isOver else { return }
        object["expected_inode"] = expectedInode.map { .integer(Int64(bitPattern: $0)) }
        object["message"] = .string(message.shortened(toWireLength: 2048))
        object["hint"] = .string(hint.shortened(toWireLength: 2048))
    }

    /// The members for `status`.
    package var json: JSONObject {
        var object = JSONObject()
        write(to: &object, isOver: false)
        return object
    }

    package init(_ object: JSONObject) {
        self.init(
            code: object.string("code") ?? "", isWarning: object.bool("warning") ?? false,
            holder: StoreEvent.Holder(object), path: object.path("path") ?? [],
            inode: UInt64(bitPattern: object.integer("inode") ?? 0),
            expectedInode: object.integer("expected_inode").map { UInt64(bitPattern: $0) },
            message: object.string("message") ?? "", hint: object.string("hint") ?? "")
    }
}
