package worker

import (
	"errors"
	"testing"

	"lector/cache"
)

func TestNearProbe(t *testing.T) {
	stored := cache.Probe{Next: 3, Draft: 9, Top: []cache.TopLogit{{ID: 3, Logit: 12}, {ID: 5, Logit: 11.9}, {ID: 7, Logit: 4}}}
	for _, c := range []struct {
		name string
		live cache.Probe
		ok   bool
	}{
		{"the same", stored, true},
		{"within the bound, another draft", cache.Probe{Next: 3, Draft: 1, Top: []cache.TopLogit{{ID: 3, Logit: 12.1}, {ID: 5, Logit: 11.8}, {ID: 7, Logit: 4.05}}}, true},
		{"two close tokens change places", cache.Probe{Next: 5, Draft: 9, Top: []cache.TopLogit{{ID: 5, Logit: 12}, {ID: 3, Logit: 11.95}, {ID: 7, Logit: 4}}}, true},
		{"a logit is off", cache.Probe{Next: 3, Draft: 9, Top: []cache.TopLogit{{ID: 3, Logit: 12}, {ID: 5, Logit: 11}, {ID: 7, Logit: 4}}}, false},
		{"another token is next", cache.Probe{Next: 7, Draft: 9, Top: []cache.TopLogit{{ID: 7, Logit: 12.2}, {ID: 3, Logit: 12}, {ID: 5, Logit: 11.9}}}, false},
		{"a leader is gone", cache.Probe{Next: 8, Draft: 9, Top: []cache.TopLogit{{ID: 8, Logit: 6}, {ID: 9, Logit: 5}, {ID: 10, Logit: 4}}}, false},
	} {
		err := nearProbe(stored, c.live)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, errProbe) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
