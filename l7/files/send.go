package files

import "golang.org/x/sys/unix"

// probeStep is the distance of the bytes that stand for their surroundings where the kernel does not count pages: file systems read
// ahead in larger steps.
const probeStep = 16 << 10

// File returns the file and the offset of the next byte, for a receiver that has the kernel send it. It is -1 where the content is no
// file. The Answer keeps the descriptor.
func (a *Answer) File() (fd int, offset int64) { return a.fd, a.at }

// Advance counts n bytes, which the kernel has sent.
func (a *Answer) Advance(n int) {
	a.at += int64(n)
	a.left -= int64(n)
}

// Cached returns how many of the next n bytes are in the page cache, so that sending them waits for no disk. Pages may leave the cache
// after it, by a shortage of memory. Where cachestat(2) counts pages the result is exact: Linux 6.5, and from 6.13 on for files
// that this process owns or may write. Elsewhere it is of every probeStep bytes.
func (a *Answer) Cached(n int) int {
	n = int(min(int64(n), a.left))
	switch {
	case a.fd < 0 || n == 0:
		return 0
	case a.has(n-1) && a.allCached(n): // a page that is being read counts, but comes before the last one
		return n
	}
	return a.sampled(n)
}

// sampled is Cached by a sample of the bytes.
func (a *Answer) sampled(n int) int {
	for at := 0; at < n; at += probeStep {
		if !a.has(at) {
			return at
		}
	}
	return n
}

// has reports whether a byte can be read now.
func (a *Answer) has(ahead int) bool {
	var b [1]byte
	n, err := a.readNow(b[:], a.at+int64(ahead))
	return err == nil && n == 1
}

// allCached reports whether the kernel says that the pages of the next n bytes are in the cache.
func (a *Answer) allCached(n int) bool {
	page := int64(unix.Getpagesize())
	first, last := a.at/page, (a.at+int64(n)-1)/page
	r := unix.CachestatRange{Off: uint64(first * page), Len: uint64((last - first + 1) * page)}
	var st unix.Cachestat_t
	return unix.Cachestat(uint(a.fd), &r, &st, 0) == nil && st.Cache >= uint64(last-first+1)
}
