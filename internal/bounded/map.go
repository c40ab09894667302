// Package bounded has a map that peers may fill.
package bounded

// Map is a map of at most so many keys: the oldest one is evicted for a new one. The zero value is empty.
type Map[K comparable, V any] struct {
	values map[K]*V
	order  []K // as they came; a ring once it is full
	next   int
}

// Len returns how many keys there are.
func (m *Map[K, V]) Len() int { return len(m.values) }

// Get returns the value of key, nil where there is none. The caller may write to it.
func (m *Map[K, V]) Get(key K) *V { return m.values[key] }

// Enter returns the value of key. Where there is none it is a new one, the zero value, and the map keeps at most limit keys,
// which is the same in each call.
func (m *Map[K, V]) Enter(key K, limit int) *V {
	if v := m.values[key]; v != nil {
		return v
	}
	if m.values == nil {
		m.values = map[K]*V{}
	}
	if len(m.order) < limit {
		m.order = append(m.order, key)
	} else {
		delete(m.values, m.order[m.next])
		m.order[m.next] = key
		m.next = (m.next + 1) % limit
	}
	v := new(V)
	m.values[key] = v
	return v
}
