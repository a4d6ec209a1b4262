package house

// Free lists the packages that may import anything of ours: cmd chooses the implementations, and tests
// join what no package may join.
func Free() []string { return []string{"cmd/...", "tests/..."} }

// Edges is the table of forbidden imports.
func Edges() []Edge {
	var all []Edge
	for _, rows := range [][]Edge{parentEdges(), engineEdges(), familyEdges(), outsideEdges()} {
		all = append(all, rows...)
	}
	return all
}

// parentEdges keeps the contracts and the story apart from everything that implements them.
func parentEdges() []Edge {
	return []Edge{
		{From: []string{"queue", "engine"}, To: []string{Ours},
			Why: "a contract knows neither the other contracts nor its implementations"},
		{From: []string{"cache"}, To: []string{Ours}, Allow: []string{"cache/twin"},
			Why: "a contract knows neither the other contracts nor its implementations; its names are digests"},
		{From: []string{"worker"}, To: []string{Ours}, Allow: []string{"queue", "cache", "cache/twin", "engine"},
			Why: "the story is told against contracts alone, so that it builds and is tested on any machine"},
		{From: []string{"worker/client"}, To: []string{Ours}, Allow: []string{"queue", "cache", "cache/twin", "engine", "worker"},
			Why: "another program's client opens its own queue and store, and loads no model"},
		{From: []string{"queue", "cache", "engine", "engine/ops"}, To: []string{Foreign}, Direct: true,
			Allow: []string{"golang.org/x/sync/..."},
			Why:   "a contract forces no library on whoever implements it"},
		{From: []string{"worker"}, To: []string{Foreign}, Direct: true,
			Allow: []string{"golang.org/x/sync/...", "go.uber.org/zap/..."},
			Why:   "the worker gets its collaborators as interfaces and needs no library for them"},
	}
}

// engineEdges orders the packages below engine.
func engineEdges() []Edge {
	return []Edge{
		{From: []string{"engine/ops/..."}, To: []string{Ours}, Allow: []string{"engine/ops/..."},
			Why: "operations are the floor that the network and its backends stand on"},
		{From: []string{"engine/weights/..."}, To: []string{Ours}, Allow: []string{"engine/weights/..."},
			Why: "a checkpoint is files and numbers: it knows no operation and no engine"},
		{From: []string{"engine/stream/..."}, To: []string{Ours}, Allow: []string{"engine/ops", "engine/weights", "engine/stream/..."},
			Why: "the reader fills slots for any backend: it knows records, no engine and no device"},
		{From: []string{"engine/token/..."}, To: []string{Ours}, Allow: []string{"engine", "engine/token/..."},
			Why: "a tokenizer is text and ids: it needs the contract's types and nothing else"},
		{From: []string{"engine/qwen4exp/..."}, To: []string{Ours},
			Allow: []string{"engine", "engine/ops", "engine/stream", "engine/weights", "engine/qwen4exp/..."},
			Why:   "the network is written once, against ops: a backend or a tokenizer in it would make two"},
		{From: []string{"engine/cpu/..."}, To: []string{Ours},
			Allow: []string{"engine/ops", "engine/stream", "engine/weights", "engine/cpu/..."},
			Why:   "a backend computes operations and knows no network"},
		{From: []string{"engine/gpu/..."}, To: []string{Ours},
			Allow: []string{"engine/ops", "engine/stream", "engine/weights", "engine/gpu/...", "metal", "shaders"},
			Why:   "a backend computes operations and knows no network; which device it is, cmd decides"},
		{From: []string{"engine/nano/..."}, To: []string{Ours},
			Allow: []string{"engine", "engine/weights", "engine/token", "engine/nano/..."},
			Why:   "nano is a checkpoint that comes along, not an engine"},
		{From: []string{"engine/enginetest/..."}, To: []string{Ours}, Allow: []string{"engine", "engine/enginetest/..."},
			Why: "the suite holds any engine to the contract, so it can know none of them"},
		{From: []string{"engine/bench/..."}, To: []string{Ours}, Allow: []string{"engine", "engine/ops", "engine/weights", "engine/bench/..."},
			Why: "a measurement holds any engine against its shapes and the machine: it knows no network, no backend and no store"},
		{From: []string{"engine/count/..."}, To: []string{Ours},
			Allow: []string{"engine", "engine/bench", "engine/gpu", "engine/ops", "engine/qwen4exp", "engine/stream", "engine/weights/...", "metal", "metal/encode", "metal/record", "shaders", "engine/count/..."},
			Why:   "the count runs the network and the GPU's backend as they are, on a device that executes nothing: it knows no other backend or device"},
		{From: []string{"engine/selfcheck/..."}, To: []string{Ours}, Allow: []string{"engine/ops", "engine/selfcheck/..."},
			Why: "the check holds any backend to any other: it knows operations alone"},
		{From: []string{"engine/oracle/..."}, To: []string{Ours},
			Allow: []string{"engine", "engine/ops", "engine/stream", "engine/weights", "engine/qwen4exp", "engine/oracle/..."},
			Why:   "the comparison reads the network's debug views; which backend computes them, cmd decides"},
		{From: []string{"engine", "engine/..."}, Except: []string{"*test", "engine/cpu/gen", "engine/cpu/fma/gen", "engine/cpu/bfp/gen"},
			To:  []string{"net", "net/...", "os/exec"},
			Why: "an engine turns tokens into state: bytes reach it through the worker, never by network"},
	}
}

// familyEdges holds every child to its own parent.
func familyEdges() []Edge {
	return []Edge{
		{From: []string{"queue/jetstream/..."}, To: []string{Ours}, Allow: []string{"queue", "queue/jetstream/..."},
			Why: "a queue moves bytes: it knows its contract, no store, no engine and no other queue"},
		{From: []string{"queue/queuetest/..."}, To: []string{Ours}, Allow: []string{"queue", "queue/queuetest/..."},
			Why: "the suite holds any queue to the contract, so it can know none of them"},
		{From: []string{"cache/dir/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/disk", "cache/dir/..."},
			Why: "a store moves bytes: it knows its contract, no queue, no engine and no other store"},
		{From: []string{"cache/s3/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/s3/..."},
			Why: "a store moves bytes: it knows its contract, no queue, no engine and no other store"},
		{From: []string{"cache/twin/..."}, To: []string{Ours},
			Why: "it computes digests of bytes and knows nothing of what they are"},
		{From: []string{"cache/disk"}, To: []string{Ours},
			Why: "it asks the file system and knows nothing of what lies there"},
		{From: []string{"cache/disk/disktest"}, To: []string{Ours}, Allow: []string{"cache/disk"},
			Why: "it takes the power from whoever keeps files, so it can know none of them"},
		{From: []string{"cache/local/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/disk", "cache/local/..."},
			Why: "it keeps copies of any store: it knows the contract alone"},
		{From: []string{"cache/spool/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/disk", "cache/spool/..."},
			Why: "a spool keeps bytes for any store: it knows the contract alone"},
		{From: []string{"cache/tag/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/tag/..."},
			Why: "a tag is a name in any store: it knows the contract alone"},
		{From: []string{"cache/sign/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/sign/..."},
			Why: "a signature lies in any store: it knows the contract alone"},
		{From: []string{"cache/gc/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/tag", "cache/gc/..."},
			Why: "the collector reads roots in any store; which jobs are open, cmd tells it"},
		{From: []string{"cache/archive/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/archive/..."},
			Why: "a snapshot is carried between any two stores: it knows the contract alone"},
		{From: []string{"cache/branch/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/branch/..."},
			Why: "a branch is a handle in any store: it knows the contract alone"},
		{From: []string{"cache/seal/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/seal/..."},
			Why: "what is sealed lies in any store: it knows the contract alone"},
		{From: []string{"cache/compress/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/compress/..."},
			Why: "what is compressed lies in any store: it knows the contract alone"},
		{From: []string{"cache/cachetest/..."}, To: []string{Ours}, Allow: []string{"cache", "cache/twin", "cache/cachetest/..."},
			Why: "the suite holds any store to the contract, so it can know none of them"},
		{From: []string{"metal", "shaders/..."}, To: []string{Ours}, Allow: []string{"shaders/..."},
			Why: "the device's interfaces and the kernels know no model and not one another"},
		{From: []string{"metal/apple/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/encode", "metal/apple/..."},
			Why: "a device implements the interfaces and knows no other device"},
		{From: []string{"metal/soft/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/encode", "metal/msl", "metal/soft/..."},
			Why: "a device implements the interfaces and knows no other device"},
		{From: []string{"metal/ptx/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/encode", "metal/msl", "metal/ptx/..."},
			Why: "a device implements the interfaces and knows no other device"},
		{From: []string{"metal/record/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/encode", "metal/record/..."},
			Why: "a device implements the interfaces and knows no other device"},
		{From: []string{"metal/encode/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/encode/..."},
			Why: "what every device's encoders do alike is the same for all: it can know none of them"},
		{From: []string{"metal/msl/..."}, To: []string{Ours}, Allow: []string{"metal/msl/..."},
			Why: "the rewriter turns text into text and knows no device"},
		{From: []string{"metal/metaltest/..."}, To: []string{Ours}, Allow: []string{"metal", "metal/metaltest/..."},
			Why: "the suite holds any device to the contract, so it can know none of them"},
		{From: []string{"metal/...", "shaders/..."}, Except: []string{"metal/soft/...", "metal/ptx/...", "*test"},
			To: []string{"os/exec"}, Direct: true,
			Why: "only the devices that compile kernels themselves start a compiler"},
		{From: []string{"deploy/..."}, To: []string{Ours},
			Why: "units and dashboards are text: they know no package, and cmd writes them"},
		{From: []string{Ours}, Except: []string{"tests/...", "*test"}, To: []string{"tests/...", "*test"},
			Why: "what ships carries no test code"},
	}
}

// outsideEdges says which package alone speaks to the outside, and by which library.
func outsideEdges() []Edge {
	tests := []string{"tests/...", "*test"}
	return []Edge{
		{From: []string{Ours}, Except: append([]string{"queue/jetstream/..."}, tests...), Direct: true,
			To:  []string{"github.com/nats-io/..."},
			Why: "queue/jetstream is the only package that knows NATS"},
		{From: []string{Ours}, Except: append([]string{"queue/jetstream/...", "cmd/..."}, tests...),
			To:  []string{"github.com/nats-io/..."},
			Why: "queue/jetstream is the only package that knows NATS, and cmd the only one that chooses it"},
		{From: []string{Ours}, Except: append([]string{"cache/s3/..."}, tests...), Direct: true,
			To:  []string{"github.com/aws/..."},
			Why: "cache/s3 is the only package that knows an object storage service"},
		{From: []string{Ours}, Except: append([]string{"cache/s3/...", "cmd/..."}, tests...),
			To:  []string{"github.com/aws/..."},
			Why: "cache/s3 is the only package that knows an object storage service, and cmd the only one that chooses it"},
		{From: []string{Ours}, Except: append([]string{"cache/seal/..."}, tests...), Direct: true,
			To:  []string{"filippo.io/age/..."},
			Why: "cache/seal is the only package that keeps keys in age files"},
		{From: []string{Ours}, Except: append([]string{"cache/compress/..."}, tests...), Direct: true,
			To:  []string{"github.com/klauspost/compress/..."},
			Why: "cache/compress is the only package that knows how blobs are compressed"},
		{From: []string{Ours}, Except: append([]string{"cmd/..."}, tests...), Direct: true,
			To:  []string{"github.com/spf13/...", "golang.org/x/term", "flag", "log", "log/slog"},
			Why: "flags, terminals and the process's log are cmd's; a package reports by its results, errors and events"},
		{From: []string{Ours}, Except: append([]string{"cmd/lector/monitor"}, tests...), Direct: true,
			To:  []string{"github.com/prometheus/..."},
			Why: "the worker tells a Meter; which library counts is chosen in one package of cmd"},
		{From: []string{Ours}, Except: append([]string{"cmd/lector/tracing"}, tests...), Direct: true,
			To:  []string{"go.opentelemetry.io/..."},
			Why: "the worker tells a Tracer; which library draws is chosen in one package of cmd"},
		{From: []string{Ours}, Except: append([]string{"cmd/...", "worker"}, tests...), Direct: true,
			To:  []string{"go.uber.org/zap/..."},
			Why: "only the worker tells the story as it goes, to a logger that cmd gives it"},
		{From: []string{Ours}, Except: append([]string{"metal/..."}, tests...), Direct: true,
			To:  []string{"github.com/ebitengine/purego/..."},
			Why: "only metal's devices call foreign code"},
		{From: []string{Ours}, Except: tests, Direct: true,
			To:  []string{"testing", "testing/...", "pgregory.net/rapid/...", "go.uber.org/goleak/...", "github.com/google/go-cmp/...", "github.com/rogpeppe/go-internal/..."},
			Why: "what ships carries no test code"},
	}
}
