package cuda

import (
	"sync/atomic"
	"unsafe"
)

func storeRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
func loadAcquire(p *uint32) uint32     { return atomic.LoadUint32(p) }

// wordAt borrows four bytes of memory.
func wordAt(mem []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[at])) }
