package shim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
)

// Programs of testdata/client at both ends, with rings from one to the other.

// serveDirect runs a server. It returns its address as arguments.
func (b *bed) serveDirect(t testing.TB, rings bool, role, more string) (at []string, server *exec.Cmd) {
	t.Helper()
	port := fmt.Sprint(7100)
	cmd := b.program(t, rings, role, "127.0.0.1", port, more)
	awaitReady(t, cmd)
	return []string{"127.0.0.1", port}, cmd
}

// awaitReady starts a program and waits for its line. It gets a process group of its own.
func awaitReady(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
}

// TestDirect runs programs against one that echoes.
func TestDirect(t *testing.T) {
	for _, args := range []string{
		"echo", "transfer 10000000", "level", "edge", "threads", "forks", "waits", "files", "exec", "unread", "ended", "borrowed",
		"moving dup", "moving dup2", "moving fdopen", "moving splice", "moving passing", "moving fork", "moving spawn", "moving vfork", "storm 3000000", "numbers", "trips", "jumps", "stays", "waits-left",
	} {
		t.Run(strings.ReplaceAll(args, " ", "-"), func(t *testing.T) {
			b := newBed(t, nil)
			words := strings.Fields(args)
			at, server := b.serveDirect(t, true, "server", "1")
			if err := b.program(t, true, append(append([]string{words[0]}, at...), words[1:]...)...).Run(); err != nil {
				t.Error(err)
			}
			if err := server.Wait(); err != nil {
				t.Errorf("server: %v", err)
			}
			if n := b.Stats(); n.Direct != 1 || n.Paired != 1 || n.Violations != 0 {
				t.Errorf("%+v", n)
			}
			until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
		})
	}
}

// TestDirectHandover: a program gives a connection with unread bytes to another one, while the peer waits in some way, has ended, or does
// not look.
func TestDirectHandover(t *testing.T) {
	for _, how := range []string{"reads", "polls", "shuts", "leaves", "sleeps"} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t, nil)
			at, server := b.serveDirect(t, true, "handover", how)
			if err := b.program(t, true, "giver", at[0], at[1], how).Run(); err != nil {
				t.Error(err)
			}
			if err := server.Wait(); err != nil {
				t.Errorf("server: %v", err)
			}
			if n := b.Stats(); n.Direct != 1 {
				t.Errorf("%+v", n)
			}
			until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
		})
	}
}

// TestDirectChatter: small messages, each of which has to wake a program that waits by poll(2), get there.
func TestDirectChatter(t *testing.T) {
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "victim", "2")
	if err := errors.Join(b.program(t, true, append([]string{"chatter"}, at...)...).Run(), server.Wait()); err != nil {
		t.Error(err)
	}
}

// TestDirectFull: a program that writes to one that does not read sees its socket become writable when that reads.
func TestDirectFull(t *testing.T) {
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "lazy", "")
	if err := errors.Join(b.program(t, true, append([]string{"full"}, at...)...).Run(), server.Wait()); err != nil {
		t.Error(err)
	}
}

// TestDirectReset: a program that closes its socket with bytes unread resets the connection, after what it has sent.
func TestDirectReset(t *testing.T) {
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "rude", "3")
	for range 3 {
		if err := b.program(t, true, append([]string{"resets"}, at...)...).Run(); err != nil {
			t.Error(err)
		}
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// TestDirectKilled: SIGKILL of one end in the middle of its work is the end for the other.
func TestDirectKilled(t *testing.T) {
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "victim", "6")
	for range 3 {
		client := b.program(t, true, append([]string{"sleeper"}, at...)...) // it writes and does not read
		awaitReady(t, client)
		time.Sleep(20 * time.Millisecond)
		_ = syscall.Kill(-client.Process.Pid, syscall.SIGKILL)
		_ = client.Wait()
	}
	var orphans []*exec.Cmd
	for range 3 {
		client := b.program(t, true, append([]string{"orphan"}, at...)...)
		awaitReady(t, client)
		orphans = append(orphans, client)
	}
	time.Sleep(20 * time.Millisecond)
	_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
	_ = server.Wait()
	for _, client := range orphans {
		if err := client.Wait(); err != nil {
			t.Error(err)
		}
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestDirectWithoutNode: connections go on when the node has ended.
func TestDirectWithoutNode(t *testing.T) {
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "server", "1")
	client := b.program(t, true, append([]string{"transfer"}, at[0], at[1], "60000000")...)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "bytes pass", func() bool { return b.Stats().DirectBytes > 1_000_000 })
	for _, p := range b.Pairs() {
		if p.Process.Tier != 1 {
			t.Errorf("%+v, tier %d", p, p.Process.Tier)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(client.Wait(), server.Wait()); err != nil {
		t.Error(err)
	}
}

// TestDirectOrNot: a pair has rings if both programs ask for them, and their users may have more.
func TestDirectOrNot(t *testing.T) {
	for _, tc := range []struct{ server, client, want bool }{{true, true, true}, {false, true, false}, {true, false, false}} {
		b := newBed(t, nil)
		at, server := b.serveDirect(t, tc.server, "server", "1")
		if err := errors.Join(b.program(t, tc.client, append([]string{"echo"}, at...)...).Run(), server.Wait()); err != nil {
			t.Error(err)
		}
		if n := b.Stats(); (n.Direct == 1) != tc.want || n.Paired != 1 {
			t.Errorf("%+v: %+v", tc, n)
		}
	}
}

// A hostile end of a direct connection: the test is the program that has called connect(2), and writes what it likes.
type intruder struct {
	*program
	page []byte
}

func (h *intruder) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&h.page[at])) }

func (h *intruder) long(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&h.page[at])) }

// intrude returns a hostile end of a connection to the program at an address.
func (b *bed) intrude(t testing.TB, c *client, at []string) *intruder {
	t.Helper()
	p := c.socket(unix.SOCK_STREAM, false)
	r, memory := p.askMemory(request{op: opConnect, addr: netip.MustParseAddrPort(at[0] + ":" + at[1]), arg: wantRings}, p.fd)
	if r.errno != 0 || memory < 0 {
		t.Fatal(r.errno, memory)
	}
	defer unix.Close(memory)
	page, err := unix.Mmap(memory, 0, pageEnd, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return &intruder{p, page}
}

// put writes to the ring, and a doorbell byte, both as a correct program does for its first bytes.
func (h *intruder) put(text string) {
	tail := h.long(outTail).Load()
	copy(h.page[pageData+tail%ring.DefaultSize:], text)
	h.long(outTail).Store(tail + uint64(len(text)))
	h.word(outNotified + 4).Add(1)
	h.word(outNotified).Store(h.word(outArm).Load()&^0xff | 2) // a doorbell byte
	if h.word(outArm).Load()&0xff >= 3 {                       // asleep
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(h.word(outNotified))), 1, 1, 0, 0, 0)
	}
	_ = h.program.write([]byte{0})
}

// arm asks for a doorbell byte, so that the program looks at the head.
func (h *intruder) arm(epoch uint64) { h.long(inArm).Store(epoch << 8) }

// TestDirectPageDecidesNothing: a program writes what it likes to the head of the page before its peer has looked at that. The peer takes the
// memory for what the node says it is, and has its locks and indexes elsewhere.
func TestDirectPageDecidesNothing(t *testing.T) {
	values := []uint32{0, 1, 2, 4096, 1<<32 - 1}
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "victim", fmt.Sprint(len(values)))
	c := b.dial(t)
	for _, v := range values {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGSTOP)
		h := b.intrude(t, c, at)
		for word := 0; word < pageHead; word += 4 {
			h.word(word).Store(v)
		}
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGCONT)
		h.put("good ")
		until(t, fmt.Sprintf("%#x: the bytes came back", v), func() bool { return h.long(inTail).Load() == 5 })
		if own := h.page[pageOwn:pageData]; !bytes.Equal(own, make([]byte, len(own))) {
			t.Errorf("%#x: the peer keeps its own in the page", v)
		}
		h.close()
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNumbersBeyondTheTables: descriptors whose numbers are above those of the library's tables work as others. The library of the test
// has small tables: to open 65536 files takes rights.
func TestNumbersBeyondTheTables(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) to build the library")
	}
	lib := filepath.Join(t.TempDir(), "lib.so")
	sources, _ := filepath.Glob("preload/*.c")
	args := append([]string{"-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-DRINGS_DESCRIPTORS=256", "-DHINTS=256", "-o", lib}, sources...)
	if out, err := exec.Command(cc, append(args, "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, how := range []string{"0", "1", "2"} {
		b := newBed(t, nil)
		at, server := b.serveDirect(t, true, "server", "1")
		client := b.program(t, true, append([]string{"beyond"}, append(at, how)...)...)
		client.Env = append(client.Env, "LD_PRELOAD="+lib)
		if err := errors.Join(client.Run(), server.Wait()); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if n := b.Stats(); n.Direct != 1 {
			t.Errorf("%s: %+v", how, n)
		}
	}
}

// TestDirectWrongIndexes: a program whose peer publishes indexes that cannot be sees its connection reset, and that peer its end.
func TestDirectWrongIndexes(t *testing.T) {
	wrong := map[string]func(h *intruder){
		"tail too far":   func(h *intruder) { h.long(outTail).Store(ring.DefaultSize + 6); h.put("") },
		"tail goes back": func(h *intruder) { h.long(outTail).Store(4); h.put("") },
		"head not yet":   func(h *intruder) { h.arm(1); h.long(inHead).Store(1 << 20); h.put("some bytes") },
		"head goes back": func(h *intruder) { h.arm(1); h.long(inHead).Store(1<<64 - ring.DefaultSize); h.put("some bytes") },
		"not final":      func(h *intruder) { h.long(outTail).Store(5 | tailLeft | tailFinal); h.put("") },
		"taken back twice": func(h *intruder) {
			h.word(outNotified).Store(3) // no more doorbell bytes
			h.long(outTail).Store(2 | tailLeft | tailFinal)
			_ = h.program.write([]byte{0})
		},
	}
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "victim", fmt.Sprint(len(wrong)*2))
	c := b.dial(t)
	for what, spoil := range wrong {
		for range 2 { // a blocking program, and one that does not block
			h := b.intrude(t, c, at)
			h.put("good ")
			until(t, what+": the bytes came back", func() bool { return h.long(inTail).Load() == 5 })
			spoil(h)
			until(t, what+": the program has closed its end", func() bool { return h.poll(unix.POLLIN, 0)&unix.POLLHUP != 0 })
			h.close()
		}
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// TestDirectHostile writes everything that a program can write, while the other echoes. That ends when the hostile one has closed.
func TestDirectHostile(t *testing.T) {
	const rounds = 24
	b := newBed(t, nil)
	at, server := b.serveDirect(t, true, "victim", fmt.Sprint(rounds))
	c := b.dial(t)
	for round := range rounds {
		h := b.intrude(t, c, at)
		random := rand.New(rand.NewPCG(uint64(round), 1))
		_ = syscall.SetNonblock(h.fd, true)
		for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); {
			word := random.IntN(192) * 4 // magic, version, size, both directions
			switch random.IntN(8) {
			case 0:
				h.word(word).Store(random.Uint32() >> random.IntN(32))
			case 1:
				h.word(word).Add(1)
			case 2:
				h.long([]int{outTail, outHead, inTail, inHead}[random.IntN(4)]).Add(uint64(random.IntN(ring.DefaultSize)))
			case 3:
				h.word([]int{outNotified, outArm, inNotified, inArm}[random.IntN(4)]).Store(uint32(random.IntN(7)))
			case 5:
				h.long(outTail).Or([]uint64{tailLeft, tailLeft | tailFinal}[random.IntN(2)])
			case 4:
				_, _ = unix.SendmsgN(h.fd, make([]byte, 1+random.IntN(5000)), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			default:
				h.put("bytes")
			}
		}
		h.close()
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}
