// Times llama.cpp, as the npm package node-llama-cpp carries it, on a GGUF: one prompt, then greedy generation.
// lector bench peer copies it beside node_modules and gives it the settings as JSON on standard input.
// It prints one line of JSON. The first generated token is part of neither time: it warms the decoder up.
import {getLlama, LlamaLogLevel} from "node-llama-cpp";
import fs from "fs";

const {file, length, generate, threads, batch, ids, vocabulary, hidden, state, copies} = JSON.parse(fs.readFileSync(0, "utf8"));
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error, maxThreads: threads});
const model = await llama.loadModel({modelPath: file});
const width = model.fileInfo.metadata.qwen4exp?.embedding_length;
if (width !== hidden)
    throw new Error(`${file} has hidden size ${width}, lector's model has ${hidden}: they are not the same model`);
const batchSize = Math.min(batch, length);

// prompt evaluates ids in a context of its own and hands the sequence on.
async function prompt(ids, then) {
    const context = await model.createContext({contextSize: ids.length + generate + 8, batchSize, sequences: 1, threads});
    const sequence = context.getSequence();
    const began = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(ids);
    const seconds = (performance.now() - began) / 1e3;
    const more = await then(sequence);
    await context.dispose();
    return {seconds, ...more};
}

// settle waits until the disk has carried out what was asked of it, as lector's bench does before a clock starts.
function settle() {
    sync(state + "-settle", "w");
    fs.unlinkSync(state + "-settle");
}

function sync(file, how) {
    const f = fs.openSync(file, how);
    fs.fsyncSync(f);
    fs.closeSync(f);
}

// save writes the sequence's state to a file, syncs it, restores it into a fresh context and generates one token, several times.
async function save(sequence) {
    const times = {save: [], synced: [], restore: [], first: []};
    for (let i = 0; i < copies; i++) {
        const context = await model.createContext({contextSize: length + generate + 8, batchSize, sequences: 1, threads});
        const fresh = context.getSequence();
        settle();
        const began = performance.now();
        await sequence.saveStateToFile(state);
        times.save.push((performance.now() - began) / 1e3);
        sync(state, "r+");
        const saved = performance.now();
        times.synced.push((saved - began) / 1e3);
        await fresh.loadStateFromFile(state, {acceptRisk: true});
        const restored = performance.now();
        for await (const _ of fresh.evaluate([ids[length] % vocabulary], {temperature: 0, yieldEogToken: true})) break;
        const ended = performance.now();
        times.restore.push((restored - saved) / 1e3);
        times.first.push((ended - saved) / 1e3);
        times.bytes = fs.statSync(state).size;
        await context.dispose();
        fs.unlinkSync(state);
    }
    return times;
}

await prompt(ids.slice(0, Math.min(256, length)), () => ({})); // weights come into memory
const result = await prompt(ids.slice(0, length), async (sequence) => {
    const times = copies > 0 ? await save(sequence) : {};
    let began = 0, count = -1;
    for await (const _ of sequence.evaluate([ids[length] % vocabulary], {temperature: 0, yieldEogToken: true})) {
        if (++count === 0) began = performance.now();
        if (count === generate) break;
    }
    return {generated: count, decode: (performance.now() - began) / 1e3, ...times};
});
console.log(JSON.stringify({...result, release: llama.llamaCppRelease?.release ?? ""}));
process.exit(0);
