package dpdk

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// ShimVariable is the environment variable that names the folder of shims, or one of them.
const ShimVariable = "MILLRACE_DPDK_SHIM"

// shimInterface is MRD_INTERFACE of shim.h.
const shimInterface = 5

// shim is the functions of an open shim.
type shim struct {
	abi     int
	path    string
	version string // of DPDK, "DPDK 22.11.11"
	fn      map[string]uintptr

	rx, tx uintptr // those of each batch
}

// names are the functions that a shim has.
var names = []string{
	"mrd_interface", "mrd_sizes", "mrd_version", "mrd_eal", "mrd_log", "mrd_probe", "mrd_describe", "mrd_configure", "mrd_start", "mrd_stop",
	"mrd_link", "mrd_losses", "mrd_extended", "mrd_register", "mrd_unregister", "mrd_ring_wire", "mrd_memory_new", "mrd_memory_free", "mrd_queue_new",
	"mrd_queue_setup", "mrd_queue_free", "mrd_lend", "mrd_return", "mrd_rest", "mrd_owned", "mrd_rx", "mrd_tx",
	"mrd_flow_create", "mrd_flow_destroy", "mrd_flow_flush",
}

// portInfo is struct mrd_port of shim.h.
type portInfo struct {
	rxOffloads, txOffloads, rssTypes                       uint64
	maxRxQueues, maxTxQueues                               uint32
	maxRxDesc, minRxDesc, maxTxDesc, minTxDesc             uint32
	mtu, minMTU, maxMTU, maxFrame, keySize, interfaceIndex uint32
	mac                                                    [8]byte
	driver                                                 [32]byte
	name                                                   [64]byte
}

// setup is struct mrd_setup of shim.h.
type setup struct {
	rxOffloads, txOffloads, rssTypes       uint64
	port, queues, mtu, keySize             uint32
	promiscuous, multicast, rxDesc, txDesc uint32
	key                                    [64]byte
}

// losses is struct mrd_losses of shim.h.
type losses struct{ missed, noFrame, rxErrors, txErrors uint64 }

// counts is struct mrd_counts of shim.h: the shim adds, Go loads.
type counts struct {
	rxPackets, rxBytes, rxInvalid                 uint64
	txPackets, txBytes, txInvalid, txInvalidBytes uint64
	rxSteered                                     uint64
	free, gone                                    uint32
}

// text returns a string of C.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// cString returns s as C has it.
func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// loaded is the shim of the process: DPDK cannot be loaded twice.
var loaded struct {
	sync.Mutex
	shim *shim
}

// Version loads the shim and returns the version of the DPDK that it uses, or an UnavailableError.
func Version() (string, error) {
	s, err := load()
	if err != nil {
		return "", err
	}
	return s.version, nil
}

// load opens the shim for the newest DPDK that is installed. A failure is not kept: what is missing may be installed
// while the program runs.
func load() (*shim, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.shim != nil {
		return loaded.shim, nil
	}
	s, err := open(Find(os.DirFS("/"), os.Getenv(ShimVariable), executable()))
	if err == nil {
		loaded.shim = s
	}
	return s, err
}

// open opens the first shim that works.
func open(f Found) (*shim, error) {
	missing := &UnavailableError{Err: ErrNoShim, Installed: f.Installed, Shims: f.abis(), Searched: f.Searched}
	if !dl.Linked() {
		missing.Err = ErrNotLinked
		return nil, missing
	}
	for _, file := range f.Shims {
		missing.Err = ErrMismatch
		s, err := openFile(file)
		if err == nil {
			return s, nil
		}
		missing.Detail = err.Error()
	}
	return nil, missing
}

func openFile(file ShimFile) (*shim, error) {
	handle, err := dl.Open(file.Path)
	if err != nil {
		return nil, err
	}
	s := &shim{abi: file.ABI, path: file.Path, fn: map[string]uintptr{}}
	find := func(name string) (err error) {
		s.fn[name], err = dl.Find(handle, name)
		return err
	}
	if err := find("mrd_interface"); err != nil {
		return nil, fmt.Errorf("%s is no shim: %w", file.Path, err)
	}
	if n := uint32(s.call("mrd_interface")); n != shimInterface {
		return nil, fmt.Errorf("%s has interface %d, this program needs %d: `%s` builds it", file.Path, n, shimInterface, BuildCommand)
	}
	for _, name := range names {
		if err := find(name); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	var sizes [6]uint32
	s.call("mrd_sizes", uintptr(unsafe.Pointer(&sizes)))
	want := [6]uint32{
		uint32(unsafe.Sizeof(counts{})), uint32(unsafe.Sizeof(portInfo{})), uint32(unsafe.Sizeof(setup{})), uint32(unsafe.Sizeof(losses{})),
		uint32(unsafe.Sizeof(flowSpec{})), uint32(unsafe.Sizeof(burst{})),
	}
	if sizes != want {
		return nil, fmt.Errorf("%s has structures of %v bytes, this program of %v: `%s` builds it", file.Path, sizes, want, BuildCommand)
	}
	var version [64]byte
	s.call("mrd_version", uintptr(unsafe.Pointer(&version)), uintptr(len(version)))
	s.version, s.rx, s.tx = text(version[:]), s.fn["mrd_rx"], s.fn["mrd_tx"]
	return s, nil
}

// call calls a function of the shim.
//
//go:uintptrescapes
func (s *shim) call(name string, args ...uintptr) int64 { return int64(dl.Call(s.fn[name], args...)) }

// log takes what DPDK has logged since the last call.
func (s *shim) log() string {
	buf := make([]byte, 4096)
	n := s.call("mrd_log", uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	return string(buf[:n])
}

// executable returns the path of the running program; "" where it is not known.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// ShimFile is a shim in the file system.
type ShimFile struct {
	Path string
	ABI  int // of the DPDK that it was built for
}

// Found lists what of DPDK is on a machine.
type Found struct {
	Installed []int      // ABI numbers of librte_eal.so, newest first
	Shims     []ShimFile // the one named, or by ABI number, newest first
	Searched  []string   // folders of shims
}

func (f *Found) abis() (list []int) {
	for _, s := range f.Shims {
		list = append(list, s.ABI)
	}
	return list
}

// Usable reports whether a shim fits a DPDK that is installed.
func (f *Found) Usable() bool {
	return slices.ContainsFunc(f.Shims, func(s ShimFile) bool { return slices.Contains(f.Installed, s.ABI) })
}

// folders are where libraries of DPDK and of Millrace are installed, without the leading slash.
var (
	libraryFolders = []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "usr/local/lib/x86_64-linux-gnu", "usr/local/lib/aarch64-linux-gnu", "usr/local/lib64"}
	shimFolders    = []string{"usr/lib/millrace", "usr/local/lib/millrace"}
)
