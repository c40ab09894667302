package topk

// slots bounds the keys that a sketch of a loop has at a time. A key with more than a share of 1/slots of the requests is among
// them, and its count is too high by at most that share.
const slots = 512

// maxKey bounds the bytes of a key: the beginning of a longer one stands for all that begin so.
const maxKey = 200

// sums add up the requests of a key.
type sums struct {
	failed, bytes uint64
	nanoseconds   int64
}

func (s *sums) add(o *sums) {
	s.failed += o.failed
	s.bytes += o.bytes
	s.nanoseconds += o.nanoseconds
}

// slot is a key with its count. Of over requests it is not known whether they had the key: they had those that it has replaced.
type slot struct {
	key         string
	count, over uint64
	sums        sums
	at          int // in sketch.heap
}

// sketch has the keys with the most requests of one loop. The zero value is ready to be used.
type sketch struct {
	byKey map[string]*slot
	heap  []*slot // by count: the one at 0 has the least
}

// add counts a request. It allocates only where a key is new.
func (s *sketch) add(key []byte, by *sums) {
	key = key[:min(len(key), maxKey)]
	if p := s.byKey[string(key)]; p != nil {
		p.count++
		p.sums.add(by)
		s.down(p.at)
		return
	}
	if s.byKey == nil {
		s.byKey = map[string]*slot{}
	}
	if len(s.heap) < slots {
		p := &slot{key: string(key), count: 1, sums: *by, at: len(s.heap)}
		s.heap = append(s.heap, p)
		s.byKey[p.key] = p
		s.up(p.at)
		return
	}
	p := s.heap[0]
	delete(s.byKey, p.key)
	p.key, p.over, p.sums = string(key), p.count, *by
	p.count++
	s.byKey[p.key] = p
	s.down(0)
}

// floor returns how many requests a key at most has that is not among the slots.
func (s *sketch) floor() uint64 {
	if len(s.heap) < slots {
		return 0
	}
	return s.heap[0].count
}

func (s *sketch) swap(i, k int) {
	s.heap[i], s.heap[k] = s.heap[k], s.heap[i]
	s.heap[i].at, s.heap[k].at = i, k
}

func (s *sketch) up(i int) {
	for i > 0 && s.heap[i].count < s.heap[(i-1)/2].count {
		s.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (s *sketch) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.heap); child++ {
			if s.heap[child].count < s.heap[least].count {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}
