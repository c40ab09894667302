package shim

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/socket"
)

// process returns whose request it is: the process with the channel, or the one that it names, which has to be of
// the same user. Only what is shown depends on it: what the request may do is decided by the channel.
func (c *channel) process() *socket.Process {
	if !c.supervisor || c.asker == 0 || !c.samePIDs() {
		return c.owner
	}
	p, err := readProcess(c.asker)
	if err != nil || c.peer.uid != 0 && p.UID != c.peer.uid {
		return c.owner
	}
	p.Seccomp = true
	return p
}

// samePIDs reports whether the process with the channel has the numbers of processes that this one has.
func (c *channel) samePIDs() bool {
	if c.pids == 0 {
		own, err := os.Readlink("/proc/self/ns/pid")
		its, e := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.owner.PID))
		c.pids = -1
		if err == nil && e == nil && own == its {
			c.pids = 1
		}
	}
	return c.pids > 0
}

// readProcess returns the process that a thread is of.
func readProcess(tid uint32) (*socket.Process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return nil, err
	}
	p := &socket.Process{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			p.Command = strings.TrimSpace(value)
		case "Tgid":
			p.PID, err = strconv.Atoi(fields[0])
		case "Uid":
			uid, e := strconv.ParseUint(fields[0], 10, 32)
			p.UID = uint32(uid)
			return p, e
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errProtocol
}

// firstFreePort is the lowest port that every user may bind (net.ipv4.ip_unprivileged_port_start of Linux).
const firstFreePort = 1024

// mayBind returns EACCES where the process may not bind the port. What was let in by a token of root, or was root when it
// opened the channel, has to be root still: programs give their rights up to lose them.
func (c *channel) mayBind(port uint16) error {
	if port == 0 || port >= firstFreePort || c.s.cfg.PrivilegedPorts || c.user.trusted && c.stillTrusted() {
		return nil
	}
	c.user.denied.Add(1)
	return syscall.EACCES
}

// stillTrusted reports whether the process with the channel acts as root, or as the node's user, now, and so does the one that it asks
// for. It has to be the process that has opened the channel: others may have that after its end, and its number another process.
func (c *channel) stillTrusted() bool {
	started, err := startTime(c.owner.PID)
	if err != nil || started != c.started || !actsTrusted(uint32(c.owner.PID)) {
		return false
	}
	return !c.supervisor || c.asker == 0 || !c.samePIDs() || actsTrusted(c.asker)
}

// actsTrusted reports whether a thread has the effective user root, or the node's.
func actsTrusted(tid uint32) bool {
	uid, err := effectiveUID(tid)
	return err == nil && (uid == 0 || int(uid) == os.Geteuid())
}

// startTime returns when a process has begun, in ticks since the machine has (starttime of proc_pid_stat(5)).
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	rest := b[bytes.LastIndexByte(b, ')')+1:] // the name of the program may have spaces and parentheses
	fields := bytes.Fields(rest)              // from the third on
	if len(fields) < 20 {
		return 0, errProtocol
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// effectiveUID returns the effective user of a thread.
func effectiveUID(tid uint32) (uint32, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line) // real, effective, saved, file system
	if len(fields) != 4 {
		return 0, errProtocol
	}
	uid, err := strconv.ParseUint(fields[1], 10, 32)
	return uint32(uid), err
}
