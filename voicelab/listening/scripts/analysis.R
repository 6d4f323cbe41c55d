# Analyze the responses of a listening test with lme4, lmerTest and ordinal:  Rscript analysis.R [votes.csv]
#
# Ratings: means of systems and differences of pairs by linear mixed models, value ~ 1 + (1 | listener) + (1 | item),
# REML, Satterthwaite's degrees of freedom; MOS, SMOS and DMOS also by a cumulative link model. AB, ABX: the same of choices,
# 0 or 1 (ABX: one-sided); exact binomial tests of all choices; logistic mixed models (Laplace approximation). A mean of n values has
# at least the variance of rounding, 1 / 12 / n, and at most the degrees of freedom of listeners and items together, or with five or
# fewer of either that number. Transcription: words correct ~ system, with interactions of system with listener and item as random
# effects, too; without residual variance, means of listeners. Means of listeners: Wilcoxon's test (exact for up to 50), items fixed.
# The order of systems and the confidence level are those in study.json. p-values are uncorrected.
suppressMessages({library(lme4); library(lmerTest); library(ordinal)})
arguments <- commandArgs(trailingOnly = TRUE)
path <- if (length(arguments)) arguments[1] else "votes.csv"
votes <- read.csv(path, colClasses = "character", na.strings = character(), check.names = FALSE)
# Text that a spreadsheet would run as a formula has a quote before it.
votes[] <- lapply(votes, function(column) sub("^'('*[=+@\t\r\n＝＋－＠-])", "\\1", column))
votes <- votes[votes$counts == "True", ]
if ("text_of_item" %in% names(votes)) votes$item <- votes$text_of_item  # takes of one text are not independent
if ("rating" %in% names(votes)) votes$rating <- as.numeric(votes$rating)
kind <- votes$kind[1]; design <- file.path(dirname(path), "study.json")
study <- if (file.exists(design)) paste(readLines(design, encoding = "UTF-8"), collapse = "") else '"systems": [] "confidence": 0.95'
level <- as.numeric(sub('.*"confidence": ([0-9.e-]+).*', "\\1", study)); listed <- sub('.*"systems": \\[([^]]*).*', "\\1", study)
choices <- c("AB", "ABX"); named <- c("system", "against", "chosen", "other")
add <- function(figure, first, second, method, estimate = NA, low = NA, high = NA, error = NA, df = NA, t = NA, p = NA)
  results[[length(results) + 1]] <<- data.frame(figure, first, second, estimate, low, high, error, df, t, p, method)

add_mean <- function(figure, rows, first, second = "", null = 0, scale = c(-Inf, Inf)) {  # the mean of value, or the lead of a system
  if (!"ahead" %in% names(rows)) rows <- aggregate(value ~ listener + item, rows, mean)
  counts <- c(length(unique(rows$listener)), length(unique(rows$item)))
  if (min(counts) < 2) return(add(figure, first, second, "mean alone", mean(rows$value)))
  fixed <- if ("ahead" %in% names(rows)) "ahead" else "1"; method <- "no residual variance"
  if (sum(resid(lm(reformulate(c(fixed, "listener", "item"), "value"), rows))^2) > 1e-9 * nrow(rows)) {
    groups <- intersect(c("listener", "item", "listener_system", "item_system"), names(rows))
    groups <- groups[sapply(rows[groups], function(group) length(unique(group))) < nrow(rows)]
    exact <- lmerControl(optCtrl = list(xtol_abs = 1e-10, ftol_abs = 1e-12)); method <- "mixed model"
    model <- reformulate(c(fixed, sprintf("(1 | %s)", groups)), "value")
    lines <- coef(summary(suppressMessages(lmerTest::lmer(model, rows, control = exact))))
    line <- lines[if (fixed == "1") 1 else paste0("ahead", first), ]; mean <- line[1]; error <- line[2]; df <- line[3]
  } else if (fixed == "ahead") {
    means <- tapply(rows$value, list(rows$listener, rows$ahead), mean)
    return(add_wilcoxon(means[, first] - means[, second], first, second))
  } else {
    means <- lapply(rows[c("listener", "item")], function(group) tapply(rows$value, group, mean))
    parts <- sapply(means, function(own) if (diff(range(own)) > 1e-9) var(own) / length(own) else 0)
    mean <- mean(rows$value); error <- sqrt(sum(parts)); df <- sum(parts)^2 / sum(parts^2 / (counts - 1))
  }
  least <- if (fixed == "ahead") 0 else sqrt(1 / 12 / nrow(rows)); most <- if (fixed == "ahead") Inf else if (min(counts) <= 5) min(counts) else sum(counts) - 2
  df <- if (error > least) min(df, most) else most; error <- max(error, least)
  ends <- pmin(pmax(mean + c(-1, 1) * qt((1 + level) / 2, df) * error, scale[1]), scale[2])
  t <- if (second != "") (mean - null) / error else NA; p <- if (kind == "ABX") pt(-t, df) else 2 * pt(-abs(t), df)
  add(figure, first, second, method, mean, ends[1], ends[2], error, df, t, p)
}

add_wilcoxon <- function(means, first, second) {
  count <- length(na.omit(means)); means <- na.omit(round(means, 12)); means <- means[means != 0]
  if (count < 2 || !length(means)) return()
  ranks <- as.integer(2 * rank(abs(means))); sums <- 1; positive <- sum(ranks[means > 0])  # exact with ties, too
  for (rank in ranks) sums <- (c(sums, numeric(rank)) + c(numeric(rank), sums)) / 2
  p <- min(1, 2 * sum(head(sums, positive + 1)), 2 * sum(tail(sums, length(sums) - positive)))
  if (length(means) > 50) p <- wilcox.test(means, exact = FALSE, correct = FALSE)$p.value
  add("means of listeners", first, second, "Wilcoxon's test", p = p)
}

differences <- function(one, two) {  # of choices 0 or 1; of transcriptions, each item heard with one system
  heard <- votes[intersect(names(votes), named)]
  rows <- votes[rowSums(matrix(unlist(heard) %in% c(one, two), nrow(votes))) == length(heard), ]
  if (kind == "transcription")
    return(cbind(votes, value = votes$rating, ahead = relevel(factor(votes$system), two),
                 listener_system = paste(votes$listener, votes$system), item_system = paste(votes$item, votes$system)))
  if (kind == "CMOS") rows$value <- ifelse(rows$system == one, rows$rating, -rows$rating)
  else if (kind %in% choices) rows$value <- 1 * (if (kind == "ABX") rows$right == "True" else rows$chosen == one)
  if ("value" %in% names(rows)) return(rows)
  cells <- aggregate(rating ~ listener + item + system, rows, mean)
  rows <- merge(cells[cells$system == one, ], cells[cells$system == two, ], by = c("listener", "item"))
  transform(rows, value = rating.x - rating.y)
}

options(width = 180)
bounds <- switch(kind, BWS = c(-1, 1), MUSHRA = , "MUSHRA-NMR" = , transcription = c(0, 100), c(1, 5))
responses <- votes
for (scale in if ("scale" %in% names(responses)) unique(responses$scale) else "") {
  votes <- if (scale == "") responses else responses[responses$scale == scale, ]
  if (scale != "") cat(scale, "\n")
  results <- list()
  systems <- sort(unique(unlist(votes[intersect(names(votes), named)])), method = "radix")
  places <- sapply(systems, function(name) regexpr(encodeString(name, quote = '"'), listed, fixed = TRUE))
  systems <- systems[order(places < 0, places)]
  if (!kind %in% c(choices, "CMOS"))
    for (system in systems) add_mean("mean", transform(votes[votes$system == system, ], value = rating), system, scale = bounds)
  if (kind == "MUSHRA") systems <- setdiff(systems, c("reference", "anchor35", "anchor70"))
  for (pair in if (length(systems) > 1) combn(systems, 2, simplify = FALSE)) {
    rows <- differences(pair[1], pair[2])
    if (!nrow(rows)) next
    if (kind %in% choices) {
      count <- sum(rows$value)
      test <- binom.test(count, nrow(rows), alternative = if (kind == "ABX") "greater" else "two.sided")
      ends <- binom.test(count, nrow(rows), conf.level = level)$conf.int
      add("share", pair[1], pair[2], "exact binomial test", count / nrow(rows), ends[1], ends[2], p = test$p.value)
    }
    null <- if (kind %in% choices) 0.5 else 0
    if (null) add_mean("share", rows, pair[1], pair[2], null, c(0, 1)) else add_mean("difference", rows, pair[1], pair[2])
    if (kind %in% choices && results[[length(results)]]$method == "mixed model") {
      fit <- suppressMessages(glmer(value > 0 ~ 1 + (1 | listener) + (1 | item), rows, family = binomial))
      line <- coef(summary(fit))[1, ]; ends <- line[1] + c(-1.96, 1.96) * line[2]
      add("log odds", pair[1], pair[2], "logistic mixed model", line[1], ends[1], ends[2], line[2], p = line[4])
    }
    if (kind %in% c("AB", "CMOS")) add_wilcoxon(tapply(rows$value, rows$listener, mean) - null, pair[1], pair[2])
    else if (!kind %in% c("ABX", "transcription")) {  # means of all ratings of listeners who rated all systems
      means <- na.omit(tapply(votes$rating, list(votes$listener, votes$system), mean)[, systems])
      add_wilcoxon(means[, pair[1]] - means[, pair[2]], pair[1], pair[2])
    }
  }
  shown <- lapply(do.call(rbind, results), function(column) if (is.numeric(column)) sprintf("%.6g", column) else column)
  if (length(results)) print(as.data.frame(shown), row.names = FALSE)
  if (kind %in% c("MOS", "SMOS", "DMOS") && length(systems) > 1 && length(unique(votes$rating)) > 2)
    print(coef(summary(clmm(factor(rating) ~ system + (1 | listener) + (1 | item), transform(votes, system = factor(system))))))
}
